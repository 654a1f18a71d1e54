#include <stdio.h>

static double twice_real(double x) { return x * 2; }
static int twice_int(int x) { return x * 2; }
static const char *twice_text(const char *s) { return s + 1; }

#define TWICE(x) \
    _Generic((x), double: twice_real, int: twice_int, const char *: twice_text, char *: twice_text)(x)
#define IS_CONST(p) _Generic((p), const int *: 1, int *: 0)

struct s {
    int x;
};

int main(void) {
    const int fixed = 1;
    int plain = 2, calls = 0;
    struct s value = {3};
    printf("%.1f %d %s\n", TWICE(1.25), TWICE(21), TWICE("text"));
    printf("%d %d\n", IS_CONST(&fixed), IS_CONST(&plain));
    printf("%d\n", _Generic(value, struct s: 10, int: 20, default: 30));
    printf("%d\n", _Generic(fixed, int: 1, default: 2));
    printf("%d %d\n", _Generic(calls++, int: 5, default: 6), calls);
    printf("%d\n", _Generic(main, int (*)(void): 1, default: 2));
    printf("%d\n", _Generic((unsigned char)1, default: 1, unsigned char: 2, signed char: 3));
    return 0;
}
