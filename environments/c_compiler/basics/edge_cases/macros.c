#include <stdio.h>

#define WIDTH 12
#define AREA (WIDTH * HEIGHT)
#define HEIGHT 3
#define SQUARE(x) ((x) * (x))
#define UNSAFE(x) x * x
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define EMPTY
#define NOTHING()
#define PICK(a, b, c) b
#define SWAP(type, a, b) \
    do {                 \
        type t = (a);    \
        (a) = (b);       \
        (b) = t;         \
    } while (0)
#define self(x) (self + (x))
#define CALL(f, x) f(x)
#define loop_a loop_b
#define loop_b loop_a

static int function_like(int x) { return x + 1; }
#define function_like(x) function_like((x) * 10)

int main(void) {
    int self = 5, loop_a = 9, loop_b = 8;
    int a = 1, b = 2;
    printf("%d %d %d\n", AREA, SQUARE(2 + 3), UNSAFE(2 + 3));
    printf("%d %d\n", MAX(3, MAX(7, 5)), PICK(1, (2, 3), 4));
    if (a)
        SWAP(int, a, b);
    else
        printf("unreachable\n");
    printf("%d %d EMPTY\n" EMPTY, a, b NOTHING());
    printf("%d %d\n", self(2), CALL(SQUARE, 6));
    printf("%d %d\n", loop_b, loop_a);
    printf("%d %d\n", function_like(3), (function_like)(3));
#undef WIDTH
#define WIDTH 100
    printf("%d\n", AREA);
    printf("%d\n", SQUARE
           (4));
    return 0;
}
