int printf(const char *format, ...);

struct point {
    int x, y;
};

int main(void) {
    int a = 5, b = 8;
    int *p = &a;
    const char *text = a > b ? "greater" : a == b ? "equal" : "less";
    printf("%s\n", text);
    printf("%.2f %d\n", a ? 1 : 2.5, (int)sizeof(a ? 1 : 2.5));
    printf("%d %d\n", (a > b ? a : b), (a > b ? a : b) - (a < b ? a : b));
    printf("%d\n", (1 ? -1 : 0u) > 0);
    *(a < b ? &a : &b) = 50;
    printf("%d %d\n", a, b);
    int *q = 1 ? p : (void *)0;
    printf("%d %d\n", *q, (0 ? p : 0) == 0);
    struct point m = {1, 2}, n = {3, 4};
    struct point o = a ? n : m;
    printf("%d %d\n", o.x, (a ? m : n).y);
    int calls = 0;
    a ? calls++ : (calls += 100);
    printf("%d\n", calls);
    printf("%ld\n", a ? -1 : 1L);
    for (int i = 0; i < 4; i++)
        printf("%d%s", i % 2 ? i * i : -i, i < 3 ? "," : "\n");
    return 0;
}
