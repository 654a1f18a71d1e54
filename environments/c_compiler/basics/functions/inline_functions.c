int printf(const char *format, ...);

static inline int square(int x) { return x * x; }

inline static double half(double x) { return x / 2; }

static inline int clamp(int x, int low, int high) {
    if (x < low)
        return low;
    if (x > high)
        return high;
    return x;
}

_Noreturn void exit(int code);

static _Noreturn void leave(int code) { exit(code); }

int main(void) {
    int (*f)(int) = square;
    int i = 3;
    int nine = square(i++);
    printf("%d %d\n", nine, i);
    printf("%d %.2f\n", f(9), half(5));
    printf("%d %d %d\n", clamp(-5, 0, 10), clamp(5, 0, 10), clamp(50, 0, 10));
    leave(clamp(square(5), 0, 23));
}
