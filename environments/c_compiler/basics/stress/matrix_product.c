int printf(const char *format, ...);

#define N 120

static double a[N][N], b[N][N], c[N][N];
static unsigned int u[N][N], v[N][N];

int main(void) {
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            a[i][j] = (i * 3 + j) % 17 - 8;
            b[i][j] = (i + j * 5) % 13 / 4.0;
            u[i][j] = (unsigned int)(i * 2654435761u + (unsigned int)j * 40503u);
        }
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            double sum = 0;
            for (int k = 0; k < N; k++)
                sum += a[i][k] * b[k][j];
            c[i][j] = sum;
        }
    double trace = 0, total = 0;
    for (int i = 0; i < N; i++) {
        trace += c[i][i];
        for (int j = 0; j < N; j++)
            total += c[i][j];
    }
    printf("%.2f %.2f %.2f\n", trace, total, c[17][93]);
    unsigned int check = 0;
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            for (int k = 0; k < N; k++)
                v[i][j] += u[i][k] * u[k][j];
            check = check * 31 + v[i][j];
        }
    printf("%u\n", check);
    return 0;
}
