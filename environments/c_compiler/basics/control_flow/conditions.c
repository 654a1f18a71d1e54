int printf(const char *format, ...);

static int sign(double x) { return x > 0 ? 1 : x < 0 ? -1 : 0; }

int main(void) {
    double tiny = 0.001;
    float none = 0.0f;
    char letter = 'x';
    const char *text = "t";
    int *nothing = 0;
    unsigned long high = 1UL << 63;
    long low_half_zero = 1L << 32;
    if (tiny)
        printf("tiny is true\n");
    if (none)
        printf("unreachable\n");
    if (letter && text && !nothing)
        printf("letter, text and no pointer\n");
    if (high)
        printf("high bit counts\n");
    if (low_half_zero)
        printf("upper half counts\n");
    while (!low_half_zero)
        printf("unreachable\n");
    if (1)
        if (0)
            printf("unreachable\n");
        else
            printf("else belongs to the inner if\n");
    printf("%d %d %d\n", sign(2.5), sign(-0.5), sign(0.0));
    printf("%d %d\n", !tiny, !none);
    for (double d = 0.0; d < 1.0; d += 0.25)
        printf("%.2f%c", d, d < 0.75 ? ' ' : '\n');
    return 0;
}
