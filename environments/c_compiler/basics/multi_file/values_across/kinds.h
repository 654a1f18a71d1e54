#ifndef KINDS_H
#define KINDS_H

struct small {
    int count;
    float weight;
};

struct large {
    long cells[7];
    double rest;
};

int take_narrow(signed char a, unsigned short b, short c, _Bool d);
unsigned char give_char(int n);
_Bool give_bool(double d);
double take_reals(float a, double b, int c, double d);
float give_float(int n);
struct small turn_small(struct small s);
struct large turn_large(struct large l, int by);
long sum(const char *kinds, ...);
double half(double x);
double call(double (*f)(double), double x);

#endif
