int printf(const char *format, ...);

int main(void) {
    int a = 6, b = 7;
    printf("%d times %d is %d\n", a, b, a * b);
    return b;
}
