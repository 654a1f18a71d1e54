int printf(const char *format, ...);

int main(void) {
    unsigned int zero = 0, max = 4294967295u;
    unsigned long lzero = 0;
    unsigned char c = 255;
    printf("%u %u\n", zero - 1, max + 2);
    printf("%u %u\n", max * max, -5u);
    printf("%lu %lu\n", lzero - 1, lzero - max);
    printf("%u %u\n", 2147483648u + 2147483648u, 3000000000u * 3);
    c++;
    printf("%d\n", c);
    printf("%d %d\n", zero - 1 > 0, max > 0x7fffffff);
    printf("%u %u\n", max / 2, max % 1000);
    printf("%lu %lu\n", 18446744073709551615ul / 10, 18446744073709551615ul % 10);
    printf("%u\n", 7u - 10u + 5u);
    unsigned int hash = 2166136261u;
    for (const char *p = "wrap around"; *p; p++)
        hash = (hash ^ (unsigned char)*p) * 16777619u;
    printf("%u\n", hash);
    return 0;
}
