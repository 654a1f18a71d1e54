#ifndef POINT_H
#define POINT_H

#ifdef TIMES_INCLUDED
#error the guard does not work
#endif
#define TIMES_INCLUDED 1

struct point {
    int x, y;
};

struct point point_of(int x, int y);
struct point point_sum(struct point a, struct point b);

#endif
