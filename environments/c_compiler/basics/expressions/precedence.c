int printf(const char *format, ...);

int main(void) {
    int a = 6, b = 3, c = 2;
    int list[4] = {10, 20, 30, 40};
    int *p = list;
    printf("%d %d %d\n", a - b - c, a / b / c, a - (b - c));
    printf("%d %d %d\n", a + b * c, (a + b) * c, a % 4 * b);
    printf("%d %d\n", 1 << 2 + 1, 20 - 3 << 1);
    printf("%d %d %d\n", a & b == b, a | b & c, a ^ b | c);
    printf("%d %d\n", a > b > c, a < b == b > a);
    printf("%d %d\n", !a + b, -a * -b);
    printf("%d %d\n", a || b && 0, (a || b) && 0);
    printf("%d %d\n", ~a & 7, !a == b);
    int x = *p++;
    int y = *++p;
    int z = ++*p;
    printf("%d %d %d %d\n", x, y, z, (int)(p - list));
    printf("%d %d\n", -list[0], sizeof list[0] * 3 == 12);
    a = b = c = 5;
    printf("%d %d\n", a + b + c, a == 5 ? b == 4 ? 1 : 2 : 3);
    a += b -= c *= 2;
    printf("%d %d %d\n", a, b, c);
    return 0;
}
