int printf(const char *format, ...);

int main(void) {
    int a[] = {17, -17, 17, -17}, b[] = {5, 5, -5, -5};
    for (int i = 0; i < 4; i++)
        printf("%d/%d: %d %d\n", a[i], b[i], a[i] / b[i], a[i] % b[i]);
    printf("%d %d\n", -7 / 2, -7 >> 1);
    printf("%d %d\n", -8 / 4, -8 % 4);
    printf("%u %u\n", 4294967290u / 7, 4294967290u % 7);
    printf("%ld %ld\n", -10000000000L / 3, -10000000000L % 3);
    printf("%d\n", -1 / 2 == 0);
    printf("%u\n", -10 / 3u);
    for (int n = -6; n <= 6; n += 3)
        printf("%d ", n / 2 * 2 + n % 2 == n);
    printf("end\n");
    long min = -9223372036854775807L - 1;
    printf("%ld %ld\n", min / 2, min % 10);
    printf("%d %d\n", 100 / 10 / 5, 100 / (10 / 5));
    unsigned char c = 200;
    printf("%d %d\n", c / -3, -c % 7);
    return 0;
}
