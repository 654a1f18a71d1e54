int printf(const char *format, ...);

int main(void) {
    signed char sc = -128;
    unsigned char uc = 255;
    short s = -32768;
    unsigned short us = 65535;
    int i = -2147483647 - 1;
    unsigned int ui = 4294967295u;
    long l = -9223372036854775807L - 1;
    unsigned long ul = 18446744073709551615ul;
    long long ll = 9223372036854775807LL;
    unsigned long long ull = 18446744073709551615ULL;
    printf("%d %d %d %d\n", sc, uc, s, us);
    printf("%d %u\n", i, ui);
    printf("%ld %lu\n", l, ul);
    printf("%lld %llu\n", ll, ull);
    printf("%d %d %d %d %d\n", (int)sizeof(char), (int)sizeof(short), (int)sizeof(int),
           (int)sizeof(long), (int)sizeof(long long));
    printf("%d %d %d %d\n", (int)sizeof(_Bool), (int)sizeof(float), (int)sizeof(double),
           (int)sizeof(void *));
    return 0;
}
