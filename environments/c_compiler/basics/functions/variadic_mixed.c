#include <stdarg.h>
#include <stdio.h>

struct pair {
    int a, b;
};

struct wide {
    long cells[5];
};

static void show(const char *kinds, ...) {
    va_list list;
    va_start(list, kinds);
    for (; *kinds; kinds++) {
        switch (*kinds) {
        case 'i':
            printf("i%d ", va_arg(list, int));
            break;
        case 'u':
            printf("u%u ", va_arg(list, unsigned int));
            break;
        case 'l':
            printf("l%ld ", va_arg(list, long));
            break;
        case 'd':
            printf("d%.2f ", va_arg(list, double));
            break;
        case 's':
            printf("s%s ", va_arg(list, char *));
            break;
        case 'p': {
            struct pair p = va_arg(list, struct pair);
            printf("p%d,%d ", p.a, p.b);
            break;
        }
        case 'w':
            printf("w%ld ", va_arg(list, struct wide).cells[4]);
            break;
        }
    }
    va_end(list);
    printf("end\n");
}

static int format(char *to, unsigned long size, const char *pattern, ...) {
    va_list list;
    va_start(list, pattern);
    int written = vsnprintf(to, size, pattern, list);
    va_end(list);
    return written;
}

int main(void) {
    struct pair p = {1, -2};
    struct wide w = {{1, 2, 3, 4, 5}};
    char c = 'c';
    short s = -7;
    float f = 1.25f;
    show("iuldsp", -1, 4000000000u, 1L << 40, 2.5, "text", p);
    show("iiiiiiiiddddddddddil", 1, 2, 3, 4, 5, 6, 7, 8, 1., 2., 3., 4., 5., 6., 7., 8., 9., 10., c,
         -1L);
    show("wipwd", w, s, p, w, f);
    char buffer[32];
    int n = format(buffer, sizeof buffer, "%d-%s-%.1f-%c", 42, "x", 0.5, c);
    printf("%d %s\n", n, buffer);
    n = format(buffer, 4, "%s", "truncated");
    printf("%d %s\n", n, buffer);
    return 0;
}
