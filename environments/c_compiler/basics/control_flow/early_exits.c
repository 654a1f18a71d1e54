#include <stdio.h>
#include <stdlib.h>

static void last(void) { printf("last\n"); }

static int nested(int depth) {
    while (1) {
        for (;;) {
            do {
                if (depth == 0)
                    return 1;
                switch (depth) {
                case 3:
                    return 2 + nested(depth - 1);
                default:
                    return 10 * nested(depth - 1);
                }
            } while (1);
        }
    }
}

static void finish(int code) {
    if (code > 10)
        exit(code);
    printf("not yet: %d\n", code);
    return;
}

int main(void) {
    atexit(last);
    printf("%d\n", nested(4));
    for (int i = 3;; i *= 2)
        finish(i);
}
