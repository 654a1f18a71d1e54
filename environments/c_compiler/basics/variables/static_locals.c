int printf(const char *format, ...);

static int counter(void) {
    static int calls;
    calls++;
    return calls;
}

static int other(int reset) {
    static int calls = 100;
    if (reset) {
        static int resets = 0;
        resets++;
        calls = 100 + resets;
    }
    return calls++;
}

static const char *remember(char c) {
    static char seen[16];
    static int used;
    seen[used++] = c;
    return seen;
}

int main(void) {
    counter();
    counter();
    printf("%d\n", counter());
    other(0);
    printf("%d\n", other(0));
    printf("%d\n", other(1));
    printf("%d\n", other(1));
    remember('a');
    remember('b');
    printf("%s\n", remember('c'));
    return 0;
}
