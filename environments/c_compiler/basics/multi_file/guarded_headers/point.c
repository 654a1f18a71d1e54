#include "point.h"

struct point point_of(int x, int y) { return (struct point){x, y}; }

struct point point_sum(struct point a, struct point b) {
    a.x += b.x;
    a.y += b.y;
    return a;
}
