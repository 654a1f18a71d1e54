int printf(const char *format, ...);

static int log_and(int value, int *trail) {
    *trail = *trail * 10 + value;
    return value;
}

int main(void) {
    int trail = 0;
    int a = (log_and(1, &trail), log_and(2, &trail), 7);
    int b, c;
    b = 3, c = 4;
    printf("%d %d %d %d\n", trail, a, b, c);
    printf("%d\n", (b++, c += b, c));
    int list[] = {(1, 2), 3};
    printf("%d %d\n", list[0], list[(b = 0, 1)]);
    int i, j;
    for (i = 0, j = 9; i < j; i += 2, j -= 1)
        ;
    printf("%d %d\n", i, j);
    if (b = 5, b > 4)
        printf("%d\n", (a, b));
    return a > 0 ? (b = 2, b + 1) : 0;
}
