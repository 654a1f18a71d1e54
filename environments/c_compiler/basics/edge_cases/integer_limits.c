#include <limits.h>
#include <stdio.h>

static int magnitude_is_odd(int n) { return n % 2 != 0; }

int main(void) {
    int min = INT_MIN, max = INT_MAX;
    long lmin = LONG_MIN;
    printf("%d %d\n", min, max);
    printf("%d %d %d\n", min < max, min < 0, -(min + 1) == max);
    printf("%u %u\n", (unsigned int)min, -(unsigned int)min);
    printf("%d %d\n", min / 2, min % 3);
    printf("%d %d\n", magnitude_is_odd(min), magnitude_is_odd(-7));
    printf("%ld %ld\n", lmin, (long)min - 1);
    printf("%lu\n", (unsigned long)lmin);
    printf("%d %d\n", -2147483648 < 0, 2147483648 > 0);
    printf("%d\n", (unsigned char)UCHAR_MAX + 1);
    printf("%d %d\n", min / -2, max / -1);
    printf("%d\n", (unsigned int)max + 1 == (unsigned int)min);
    return 0;
}
