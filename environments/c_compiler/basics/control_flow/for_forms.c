int printf(const char *format, ...);

static int calls;

static int bound(void) {
    calls++;
    return 4;
}

int main(void) {
    int i, j;
    for (i = 0, j = 10; i < j; i++, j--)
        ;
    printf("%d %d\n", i, j);
    for (int a = 1, b = 1, t; a < 100; t = a + b, a = b, b = t)
        printf("%d%c", a, a == 89 ? '\n' : ' ');
    for (i = 0; i < bound(); i++) {
    }
    printf("%d\n", calls);
    i = 3;
    for (; i;)
        i--;
    printf("%d\n", i);
    for (const char *p = "text"; *p; ++p)
        printf("[%c]", *p);
    printf("\n");
    for (unsigned int u = 3; u < 4; u--)
        printf("%u ", u);
    printf("end\n");
    for (struct { int lo, hi; } r = {0, 6}; r.lo < r.hi; r.lo += 2, r.hi--)
        printf("(%d %d)", r.lo, r.hi);
    printf("\n");
    return 0;
}
