int printf(const char *format, ...);

static int calls;
static int list[4] = {1, 2, 3, 4};

static int next(void) { return calls++; }

int main(void) {
    int a = 20;
    a += 5;
    a -= 3;
    a *= 4;
    a /= 3;
    a %= 10;
    a <<= 3;
    a >>= 1;
    a |= 1;
    a &= 0x3f;
    a ^= 7;
    printf("%d\n", a);
    list[next()] += 10;
    list[next()] *= 10;
    printf("%d %d %d\n", list[0], list[1], calls);
    int *p = list;
    *p++ += 1;
    *p -= 1;
    p += 2;
    printf("%d %d %d\n", list[0], list[1], *p);
    double d = 10;
    d *= 1.5;
    int i = 10;
    i *= 1.55;
    i -= 0.5;
    printf("%.1f %d\n", d, i);
    unsigned char c = 10;
    c -= 20;
    c /= 2;
    printf("%d\n", c);
    long wide = 1;
    wide <<= 35;
    wide += -1;
    i = 3;
    i += wide % 7;
    printf("%ld %d\n", wide, i);
    return 0;
}
