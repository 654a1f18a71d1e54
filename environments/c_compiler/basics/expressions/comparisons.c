int printf(const char *format, ...);

int main(void) {
    int minus = -1;
    unsigned int one = 1;
    long long_minus = -1;
    unsigned long huge = ~0UL;
    printf("%d %d %d\n", (unsigned int)minus < one, minus < 1, long_minus < one);
    printf("%d %d\n", (unsigned long)long_minus == huge, (unsigned int)minus == huge);
    printf("%d %d %d %d\n", 3 < 4, 4 <= 4, 5 > 6, 6 >= 7);
    printf("%d %d %d\n", 'a' < 'b', 1.5 > 1, 0.1f < 0.1);
    signed char sc = -1;
    unsigned char uc = 255;
    printf("%d %d\n", sc == uc, (unsigned char)sc == uc);
    short s = -2;
    printf("%d %d\n", s < 0, s < (short)0x7fff);
    int list[5];
    int *p = list, *q = list + 3;
    printf("%d %d %d %d\n", p < q, q <= p, p != q, q - 3 == p);
    printf("%d %d\n", p != 0, !p);
    double zero = 0.0;
    double nan = zero / zero, infinity = 1 / zero;
    printf("%d %d %d %d %d\n", nan == nan, nan != nan, nan < 1, !(nan >= 1), infinity > 1e308);
    printf("%d\n", (3 > 2) + (2 > 1) * 10 + (1 > 2) * 100);
    long a = 4294967296L, b = 0;
    printf("%d %d\n", a == b, a > b);
    return 0;
}
