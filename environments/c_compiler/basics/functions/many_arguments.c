int printf(const char *format, ...);

static int weigh(int a, int b, int c, int d, int e, int f, int g, int h, int i, int j) {
    return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + 9 * i + 10 * j;
}

static double mixed(int a, double b, long c, float d, char e, double f, short g, double h,
                    double i, unsigned char j, double k, double l, double m, double n, int o) {
    return a + b * 2 + (double)c + d * 4 + e + f * 8 + g + h + i + j + k + l + m + n * 16 + o;
}

static long narrow(signed char a, unsigned char b, short c, unsigned short d, _Bool e, int f,
                   signed char g, unsigned short h, _Bool i) {
    return a + b * 3L + c * 5L + d * 7L + e * 11L + f * 13L + g * 17L + h * 19L + i * 23L;
}

int main(void) {
    printf("%d\n", weigh(1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
    printf("%.3f\n", mixed(1, 0.5, 3L, 0.25f, 'A', 1.5, -6, 7.0, 8.0, 255, 10.0, 11.0, 12.0, 0.125,
                           14));
    printf("%ld\n", narrow(-1, 255, -300, 65535, 4, -5, -128, 40000, 0));
    printf("%d %d %d %d %d %d %d %d %.1f %.1f %s\n", 1, 2, 3, 4, 5, 6, 7, 8, 9.5, 10.5, "eleven");
    printf("%.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %d\n", 1., 2., 3., 4., 5., 6., 7., 8.,
           9., 10., 11);
    printf("%d\n", weigh(weigh(1, 0, 0, 0, 0, 0, 0, 0, 0, 0), weigh(0, 1, 0, 0, 0, 0, 0, 0, 0, 0), 0,
                         0, 0, 0, 0, 0, weigh(0, 0, 0, 0, 0, 0, 0, 0, 0, 1), 1));
    return 0;
}
