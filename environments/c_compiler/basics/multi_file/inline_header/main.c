/* An inline function of a header, with its external definition in one file. */
#include "maths.h"

#include <stdio.h>

int through_pointer(int x);

int main(void) {
    printf("%d %d %d\n", triple(5), lesser(3, -3), through_pointer(7));
    printf("%d %d\n", COUNT, counted());
    return 0;
}
