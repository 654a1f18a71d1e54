#include "kinds.h"

struct small turn_small(struct small s) {
    struct small turned = {(int)(s.weight * 2), (float)s.count};
    return turned;
}

struct large turn_large(struct large l, int by) {
    for (int i = 0; i < 7; i++)
        l.cells[i] *= by;
    long first = l.cells[0];
    l.cells[0] = l.cells[6];
    l.cells[6] = first;
    l.rest /= by;
    return l;
}
