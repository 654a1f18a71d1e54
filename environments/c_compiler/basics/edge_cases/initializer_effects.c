/* Initial values are evaluated anew each time, and all of an object that is not named is zero. */
int printf(const char *format, ...);

struct inner { int a, b; };
struct outer { struct inner first; int list[3]; struct inner *link; struct inner last; };

static int dirty(void) {
    volatile int junk[64];
    for (int i = 0; i < 64; i++)
        junk[i] = -1;
    return junk[63];
}

static int clean(int n) {
    struct outer o = {.list = {n}};
    int zeros[20] = {0};
    int sum = o.first.a + o.first.b + o.list[0] + o.list[1] + o.list[2] + o.last.a + o.last.b;
    for (int i = 0; i < 20; i++)
        sum += zeros[i];
    return sum + (o.link != 0);
}

int main(void) {
    printf("%d %d\n", dirty(), clean(5));
    for (int i = 0; i < 3; i++) {
        int squares[2] = {i, i * i};
        struct inner pair = {squares[1], -squares[1]};
        int self = sizeof self;
        squares[0] += self;
        printf("%d %d %d\n", squares[0], squares[1], pair.b);
    }
    struct outer flat = {1, 2, 3, 4, 5, 0, 6, 7};
    printf("%d %d %d %d\n", flat.first.b, flat.list[2], flat.last.a, flat.last.b);
    struct inner chain[] = {1, 2, {3}, 5, 6};
    printf("%d %d %d\n", (int)(sizeof chain / sizeof chain[0]), chain[1].b, chain[2].b);
    return 0;
}
