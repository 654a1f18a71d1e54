int printf(const char *format, ...);

static long sum_to(long n) { return n == 0 ? 0 : n + sum_to(n - 1); }

static int depth_of(const unsigned char *path, int n) {
    int here[4];
    if (n == 0)
        return 0;
    for (int i = 0; i < 4; i++)
        here[i] = path[n % 8] + i;
    int below = depth_of(path, n - 1);
    return (below * 3 + here[n % 4]) % 10007;
}

static int collatz(unsigned long n) { return n == 1 ? 0 : 1 + collatz(n % 2 ? 3 * n + 1 : n / 2); }

static int ways(int amount, const int *coins) {
    if (amount == 0)
        return 1;
    if (amount < 0 || *coins == 0)
        return 0;
    return ways(amount - *coins, coins) + ways(amount, coins + 1);
}

int main(void) {
    const unsigned char path[8] = {3, 1, 4, 1, 5, 9, 2, 6};
    const int coins[] = {50, 25, 10, 5, 1, 0};
    int longest = 0, at = 0;
    printf("%ld\n", sum_to(30000));
    printf("%d\n", depth_of(path, 20000));
    for (int i = 1; i < 20000; i++) {
        int length = collatz((unsigned long)i);
        if (length > longest)
            longest = length, at = i;
    }
    printf("%d %d\n", longest, at);
    printf("%d\n", ways(300, coins));
    return 0;
}
