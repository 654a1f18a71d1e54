int printf(const char *format, ...);

struct tiny { char c; };
struct pair { int a, b; };
struct reals { double x, y; };
struct mix { int i; float f; double d; };
struct three { char c[3]; };
struct big { long v[6]; };
struct nest { struct pair p; struct tiny t; };
union either { long l; double d; };

static int tiny(struct tiny t) { return t.c; }
static int pair(struct pair p) { p.a *= 2; return p.a + p.b; }
static double reals(struct reals r) { return r.x * 10 + r.y; }
static double mix(struct mix m) { return m.i + m.f + m.d; }
static int three(struct three t) { return t.c[0] + t.c[1] * 2 + t.c[2] * 3; }
static long big(struct big b) { long s = 0; for (int i = 0; i < 6; i++) s = s * 2 + b.v[i]; b.v[0] = 99; return s; }
static int nest(struct nest n) { return n.p.a * n.p.b + n.t.c; }
static long either(union either e) { return e.l; }
static long crowd(int a, struct big b, int c, struct pair d, struct pair e, struct pair f,
                  struct mix g, int h, struct reals i) {
    return a + b.v[5] * 3 + c * 5 + d.b * 7 + e.a * 11 + f.b * 13 + (long)g.d * 17 + h * 19
           + (long)i.y * 23;
}

int main(void) {
    struct pair p = {3, 4};
    struct big b = {{1, 0, 0, 1, 0, 1}};
    struct mix m = {1, 0.5f, 0.25};
    struct reals r = {1.5, 2.0};
    union either e = {77};
    printf("%d %d %d\n", tiny((struct tiny){'t'}), pair(p), p.a);
    printf("%.2f %.2f %d\n", reals(r), mix(m), three((struct three){{1, 2, 3}}));
    printf("%ld %ld %d %ld\n", big(b), b.v[0], nest((struct nest){p, {5}}), either(e));
    printf("%ld\n", crowd(1, b, 2, p, (struct pair){6, 7}, (struct pair){8, 9}, m, 10, r));
    return 0;
}
