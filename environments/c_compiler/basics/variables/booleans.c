int printf(const char *format, ...);

_Bool flag;

static _Bool is_even(int n) { return n % 2 == 0; }
static int as_int(_Bool b) { return b; }

int main(void) {
    _Bool a = 42, b = 0.25, c = "text", d = (void *)0, e = -1;
    printf("%d %d %d %d %d %d\n", flag, a, b, c, d, e);
    a = 256;
    flag = a;
    flag++;
    printf("%d %d\n", a, flag);
    a -= 1;
    b = !b;
    printf("%d %d %d\n", a, b, a == b);
    printf("%d %d %d\n", is_even(10), is_even(7), as_int(1000));
    _Bool set[3] = {1, 0, 2};
    printf("%d %d\n", set[0] + set[1] + set[2], (int)sizeof set);
    printf("%d %d\n", (_Bool)0.1, (int)(_Bool)256);
    return 0;
}
