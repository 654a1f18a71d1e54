/* Each file has its own value, its own helper and its own counter. */
#include <stdio.h>

static int value = 1;
static int helper(void) { return value; }

int one(void);
int two(void);

int main(void) {
    int sum = 0;
    for (int i = 0; i < 3; i++)
        sum += one() + two() * 100 + helper();
    value = 50;
    printf("%d %d %d %d\n", sum, helper(), one(), two());
    return 0;
}
