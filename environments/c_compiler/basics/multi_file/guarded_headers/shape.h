#ifndef SHAPE_H
#define SHAPE_H

#include "point.h"

enum kind { LINE, SQUARE };

struct shape {
    enum kind kind;
    struct point origin;
    int size;
};

struct shape shape_moved(struct shape s, struct point by);
int shape_area(const struct shape *s);

#endif
