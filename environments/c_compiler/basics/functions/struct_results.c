#include <stdio.h>
#include <stdlib.h>

struct tiny { char c; };
struct pair { int a, b; };
struct reals { double x, y; };
struct mix { long n; double d; };
struct floats { float x, y, z; };
struct big { int v[10]; };

static struct tiny tiny(int c) { struct tiny t = {(char)c}; return t; }
static struct pair pair(int a, int b) { return (struct pair){a, b}; }
static struct pair swapped(struct pair p) { return pair(p.b, p.a); }
static struct reals reals(double x) { struct reals r; r.x = x; r.y = -x; return r; }
static struct mix mix(int n) { struct mix m = {n, n / 4.0}; return m; }
static struct floats floats(float f) { struct floats v = {f, f * 2, f * 3}; return v; }
static struct big big(int start) { struct big b; for (int i = 0; i < 10; i++) b.v[i] = start + i; return b; }
static struct big grown(struct big b, int by) { for (int i = 0; i < 10; i++) b.v[i] *= by; return b; }
static struct big recursive(int n) {
    if (n == 0)
        return big(1);
    struct big b = recursive(n - 1);
    b.v[n] += n * 100;
    return b;
}

int main(void) {
    struct pair p = swapped(swapped(pair(1, 2)));
    struct big b;
    printf("%c %d %d %d\n", tiny('t').c, p.a, p.b, swapped(p).a);
    printf("%.2f %.2f %ld %.2f\n", reals(2.5).x, reals(2.5).y, mix(7).n, mix(7).d);
    printf("%.1f %.1f\n", floats(0.5f).y, floats(0.5f).z);
    b = grown(big(3), 2);
    b = grown(b, 5);
    printf("%d %d %d\n", b.v[0], b.v[9], big(4).v[2]);
    b = recursive(4);
    printf("%d %d %d %d\n", b.v[0], b.v[1], b.v[4], b.v[5]);
    div_t d = div(-17, 5);
    ldiv_t l = ldiv(1000000000000L, 7L);
    printf("%d %d %ld %ld\n", d.quot, d.rem, l.quot, l.rem);
    return 0;
}
