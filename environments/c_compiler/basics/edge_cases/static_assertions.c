#include <assert.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>

_Static_assert(sizeof(int32_t) == 4, "32 bits");
static_assert(CHAR_BIT == 8, "bytes");

struct header {
    uint8_t kind;
    uint16_t length;
    _Static_assert(sizeof(uint16_t) == 2, "in a struct");
    uint32_t sum;
};

enum { COUNT = 5 };

int main(void) {
    _Static_assert(COUNT * 2 == 10 && INT_MAX > 0, "in a function");
    int64_t big = INT64_MIN;
    uint64_t most = UINT64_MAX;
    printf("%d %d %d\n", SCHAR_MIN, SHRT_MAX, INT_MIN);
    printf("%ld %lu\n", (long)big, (unsigned long)most);
    printf("%d\n", (int)sizeof(struct header));
    assert(COUNT == 5);
    return 0;
}
