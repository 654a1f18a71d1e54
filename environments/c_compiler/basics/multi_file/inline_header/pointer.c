#include "maths.h"

int through_pointer(int x);

int through_pointer(int x) {
    int (*f)(int) = triple;
    return f(x) + 1;
}
