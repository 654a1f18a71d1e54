int printf(const char *format, ...);

const int limit = 12;
volatile int signalled;
static const char *const names[] = {"one", "two"};
static const volatile int *watch = &signalled;

static int read_twice(volatile int *p) { return *p + *p; }

int main(void) {
    volatile int v = 3;
    const int *p = &limit;
    int plain = 4;
    int *const fixed = &plain;
    const int *const both = fixed;
    *fixed = 6;
    v += 2;
    signalled = 1;
    printf("%d %d %d %d\n", *p, plain, *both, read_twice(&v));
    printf("%s %s %d\n", names[0], names[1], *watch);
    for (volatile int i = 0; i < 3; i++)
        signalled += i;
    printf("%d\n", signalled);
    return 0;
}
