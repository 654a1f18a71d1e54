#include <math.h>
#include <stdio.h>

int main(void) {
    printf("%.6f %.6f\n", sqrt(2.0), pow(2.0, 0.5) * pow(2.0, 0.5));
    printf("%.6f %.6f\n", sin(0.5), cos(0.5));
    printf("%.1f %.1f %.1f\n", floor(-2.5), ceil(-2.5), fabs(-2.5));
    printf("%.1f %.3f\n", fmod(10.5, 3.0), hypot(3.0, 4.0));
    printf("%.4f %.4f\n", exp(1.0), log(10.0));
    printf("%d %d\n", isnan(NAN) != 0, isinf(-INFINITY) != 0);
    printf("%.2f %ld\n", (double)sqrtf(6.25f), lround(2.5));
    return 0;
}
