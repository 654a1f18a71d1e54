int printf(const char *format, ...);

int main(void) {
    unsigned int u = 0x80000001u;
    int negative = -17;
    unsigned long wide = 1;
    printf("%u %u\n", u >> 1, u << 1);
    printf("%d %d\n", negative >> 2, 17 >> 2);
    printf("%lx %lx\n", wide << 63, (wide << 40) >> 8);
    printf("%ld\n", -1L >> 63);
    for (int i = 0; i < 32; i += 9)
        printf("%x ", 1u << i);
    printf("end\n");
    unsigned char c = 0xf0;
    printf("%d %d\n", c << 8, (unsigned char)(c << 1));
    u >>= 31;
    u <<= 4;
    wide <<= u;
    printf("%u %lu\n", u, wide);
    long count = 3;
    printf("%d %u\n", 5 << count, (0xdeadbeefu << 8) | (0xdeadbeefu >> 24));
    printf("%lld\n", 1LL << 32 | 1);
    return 0;
}
