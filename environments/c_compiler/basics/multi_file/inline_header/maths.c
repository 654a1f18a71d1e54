#include "maths.h"

extern inline int triple(int x);

static int values[COUNT] = {4, 2, 9};

int counted(void) {
    int least = values[0];
    for (int i = 1; i < COUNT; i++)
        least = lesser(least, values[i]);
    return least;
}
