int printf(const char *format, ...);

static int population(unsigned long x) {
    int n = 0;
    for (; x; x &= x - 1)
        n++;
    return n;
}

static unsigned int reversed(unsigned int x) {
    unsigned int r = 0;
    for (int i = 0; i < 32; i++, x >>= 1)
        r = r << 1 | (x & 1);
    return r;
}

int main(void) {
    unsigned int a = 0xff00ff00u, b = 0x0ff00ff0u;
    printf("%x %x %x %x\n", a & b, a | b, a ^ b, ~a);
    printf("%d %d %d\n", 12 & 10, 12 | 10, 12 ^ 10);
    printf("%d %d\n", -1 & 0xff, -8 | 3);
    printf("%d %d\n", population(0xffffUL << 30), population(0));
    printf("%x %x\n", reversed(1), reversed(0x12345678u));
    a &= 0xffff;
    a |= 1u << 31;
    a ^= b;
    printf("%x\n", a);
    long wide = ~0L;
    printf("%ld %lx\n", wide, wide & 0xf0f0f0f0f0f0f0f0);
    printf("%lx\n", ~0u & ~0xffUL);
    int x = 5, y = 9;
    x ^= y;
    y ^= x;
    x ^= y;
    printf("%d %d\n", x, y);
    return 0;
}
