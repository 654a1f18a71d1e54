int printf(const char *format, ...);

static int calls;

static int yes(void) {
    calls += 1;
    return 1;
}

static int no(void) {
    calls += 10;
    return 0;
}

static int measure(int value) {
    int made = calls;
    calls = 0;
    return value * 1000 + made;
}

int main(void) {
    int r;
    r = yes() && yes();
    printf("%d\n", measure(r));
    r = no() && yes();
    printf("%d\n", measure(r));
    r = yes() || no();
    printf("%d\n", measure(r));
    r = no() || no();
    printf("%d\n", measure(r));
    r = no() && yes() || yes();
    printf("%d\n", measure(r));
    r = yes() || yes() && no();
    printf("%d\n", measure(r));
    r = !(no() || yes()) && yes();
    printf("%d\n", measure(r));
    int *nothing = 0;
    if (nothing && *nothing == 3)
        printf("unreachable\n");
    int zero = 0;
    if (zero == 0 || 10 / zero)
        printf("divided by nothing\n");
    return (5 && 7) + (0 || 9) * 2;
}
