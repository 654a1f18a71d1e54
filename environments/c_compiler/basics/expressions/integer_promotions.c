int printf(const char *format, ...);

int main(void) {
    unsigned char a = 200, b = 100;
    signed char c = -1;
    unsigned short s = 65535;
    printf("%d %d\n", a + b, a * b);
    printf("%d %d\n", ~a, -a);
    printf("%d %d\n", (unsigned char)~a, (unsigned char)(a + b));
    printf("%d %d\n", a << 4, a >> 1);
    printf("%d %d\n", c < a, c == (signed char)255);
    printf("%d %d\n", s + 1 > s, (unsigned short)(s + 1));
    printf("%d %d\n", (int)sizeof(a + b), (int)sizeof(+c));
    printf("%d %d\n", (int)sizeof(s + 1L), (int)sizeof('x'));
    a += b;
    printf("%d\n", a);
    c >>= 1;
    printf("%d\n", c);
    a = 0;
    a--;
    printf("%d %d\n", a, !a);
    _Bool yes = 1;
    printf("%d %d\n", yes + yes, -yes);
    return 0;
}
