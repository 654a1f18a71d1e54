#include "kinds.h"

#include <stdarg.h>

int take_narrow(signed char a, unsigned short b, short c, _Bool d) { return a + b + c + d; }

unsigned char give_char(int n) { return (unsigned char)n; }

_Bool give_bool(double d) { return d; }

long sum(const char *kinds, ...) {
    long total = 0;
    va_list list;
    va_start(list, kinds);
    for (; *kinds; kinds++)
        total += *kinds == 'i'   ? va_arg(list, int)
                 : *kinds == 'l' ? va_arg(list, long)
                                 : (long)(va_arg(list, double) * 2);
    va_end(list);
    return total;
}
