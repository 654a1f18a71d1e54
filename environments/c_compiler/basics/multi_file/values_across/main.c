/* Arguments and results of every kind, between files that are compiled apart. */
#include "kinds.h"

#include <stdio.h>

int main(void) {
    struct small s = {1, 2.5f};
    struct large l = {{1, 2, 3, 4, 5, 6, 7}, 8.5};
    printf("%d %d %d\n", take_narrow(-1, 65535, -100, 1), give_char(300), give_bool(0.5));
    printf("%.2f %.2f\n", take_reals(0.5f, 1.5, 2, 4.0), (double)give_float(3));
    s = turn_small(s);
    l = turn_large(l, 2);
    printf("%d %.1f %ld %ld %.1f\n", s.count, (double)s.weight, l.cells[0], l.cells[6], l.rest);
    printf("%ld %.1f\n", sum("iildi", 1, 2, 3L, 4.5, 5), call(half, 9.0));
    return 0;
}
