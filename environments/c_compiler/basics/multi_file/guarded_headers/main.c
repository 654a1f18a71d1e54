#include "shape.h"
#include "point.h"
#include "shape.h"

#include <stdio.h>

int main(void) {
    struct shape s = {.kind = SQUARE, .origin = {1, 2}, .size = 5};
    struct shape t = shape_moved(s, point_of(10, 20));
    printf("%d %d %d\n", t.origin.x, t.origin.y, shape_area(&t));
    t.kind = LINE;
    printf("%d %d %d\n", shape_area(&t), s.origin.x, TIMES_INCLUDED);
    return 0;
}
