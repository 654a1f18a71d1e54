int printf(const char *format, ...);

float single = 0.1f;
double fraction = 1e-3;

int main(void) {
    float f = 16777216.0f;
    double d = 9007199254740992.0;
    float sum = 0;
    for (int i = 0; i < 8; i++)
        sum += 0.125f;
    printf("%.10f %.17g\n", single, fraction);
    printf("%.1f %.1f\n", f + 1.0, d + 2.0);
    f = f + 1.0f;
    printf("%.1f %.3f\n", f, sum);
    printf("%g %g %g\n", 1.5e10, .5, 3.);
    printf("%.6e %.3g\n", 12345.678, 0x1.8p3);
    float narrowed = (float)0.1;
    printf("%d %d\n", narrowed == 0.1, narrowed == 0.1f);
    d = -0.0;
    printf("%d %.1f\n", d == 0.0, d);
    d = 7.0;
    d /= 2;
    d -= .25;
    d++;
    printf("%.4f %.2f\n", d, -d * 2);
    return 0;
}
