#include "kinds.h"

double take_reals(float a, double b, int c, double d) { return a + b * c / d; }

float give_float(int n) { return (float)n / 4; }

double half(double x) { return x / 2; }

double call(double (*f)(double), double x) { return f(x); }
