int printf(const char *format, ...);

static unsigned long factorial(unsigned int n) { return n < 2 ? 1 : n * factorial(n - 1); }

static int fibonacci(int n) {
    if (n < 2)
        return n;
    return fibonacci(n - 1) + fibonacci(n - 2);
}

static void hanoi(int n, int from, int to, int by, int *moves) {
    if (n == 0)
        return;
    hanoi(n - 1, from, by, to, moves);
    ++*moves;
    hanoi(n - 1, by, to, from, moves);
}

static void print_binary(unsigned int n) {
    if (n > 1)
        print_binary(n / 2);
    printf("%u", n % 2);
}

int main(void) {
    int moves = 0;
    hanoi(10, 1, 3, 2, &moves);
    printf("%lu %d %d\n", factorial(20), fibonacci(20), moves);
    print_binary(1234567);
    printf("\n");
    return 0;
}
