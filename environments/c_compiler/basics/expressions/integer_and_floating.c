int printf(const char *format, ...);

int main(void) {
    int i = 7;
    unsigned int u = 4000000000u;
    long l = -5000000000L;
    unsigned long ul = 9223372036854775808ul;
    float f = i;
    double d = u;
    printf("%.1f %.1f %.1f %.1f\n", f, d, (double)l, (double)ul);
    i = 3.7;
    u = 3999999999.5;
    l = -4999999999.5;
    ul = 9223372036854777856.0;
    printf("%d %u %ld %lu\n", i, u, l, ul);
    signed char c = (signed char)-100.6;
    unsigned short s = (unsigned short)65535.9;
    printf("%d %d\n", c, s);
    printf("%.2f %.2f\n", i + 0.5, 10 / 4 * 1.0);
    printf("%.1f\n", 1 + 2.0f * i);
    printf("%d\n", 16777217 == (float)16777216);
    d = 1;
    d += i;
    i += 2.9;
    printf("%.1f %d\n", d, i);
    char letter = 'a';
    d = letter;
    printf("%.1f %d\n", d + 0.5, (int)(letter * 1.5));
    printf("%.1f\n", (float)(unsigned char)200 + (signed char)-56);
    _Bool b = 0.3;
    printf("%d\n", b);
    return 0;
}
