#include "stack.h"

#include <stdio.h>

static void show(long value, void *context) {
    int *seen = context;
    printf("%s%ld", (*seen)++ ? " " : "", value);
}

int main(void) {
    struct stack *s = stack_new();
    int seen = 0;
    for (long i = 1; i <= 40; i++)
        stack_push(s, i * i * i);
    while (stack_size(s) > 8)
        stack_pop(s);
    stack_each(s, show, &seen);
    long last = stack_pop(s);
    printf("\n%d %ld %d\n", seen, last, stack_size(s));
    stack_free(s);
    return 0;
}
