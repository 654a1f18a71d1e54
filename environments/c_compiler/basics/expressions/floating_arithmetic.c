int printf(const char *format, ...);

int main(void) {
    double a = 7.5, b = -2.25;
    float f = 3.0f;
    printf("%.3f %.3f %.4f %.4f\n", a + b, a - b, a * b, a / b);
    printf("%.6f %.6f\n", f / 7.0f, f / 7);
    printf("%.15f %.7f\n", 1.0 / 3, 1.0f / 3);
    printf("%d %d\n", 0.1 + 0.2 == 0.3, 0.5 + 0.25 == 0.75);
    printf("%.1f %.1f\n", 1e16 + 1.0 - 1e16, 1e15 + 1.0 - 1e15);
    printf("%.2f %.2f\n", -a, -(b));
    printf("%.1f\n", 5 / 2 + 5 / 2.0);
    double power = 1;
    for (int i = 0; i < 60; i++)
        power *= 2;
    printf("%.0f %g\n", power, 1 / power);
    double root = 2;
    for (int i = 0; i < 8; i++)
        root = (root + 2 / root) / 2;
    printf("%.12f\n", root);
    printf("%e %G\n", 6.02e23, 1e-10);
    float sum = 0;
    for (int i = 1; i <= 4; i++)
        sum += 1.0f / (float)(1 << i);
    printf("%.4f\n", sum);
    printf("%d %d\n", a > b, (int)(a * 2) % 4);
    return 0;
}
