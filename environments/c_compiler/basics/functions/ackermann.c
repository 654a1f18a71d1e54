int printf(const char *format, ...);

static int ackermann(int m, int n) {
    if (m == 0)
        return n + 1;
    if (n == 0)
        return ackermann(m - 1, 1);
    return ackermann(m - 1, ackermann(m, n - 1));
}

static int tak(int x, int y, int z) {
    return y < x ? tak(tak(x - 1, y, z), tak(y - 1, z, x), tak(z - 1, x, y)) : z;
}

int main(void) {
    printf("%d %d %d\n", ackermann(2, 3), ackermann(3, 3), ackermann(3, 5));
    printf("%d\n", tak(12, 8, 4));
    return 0;
}
