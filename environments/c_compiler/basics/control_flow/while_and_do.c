int printf(const char *format, ...);

static int digits(unsigned int n) {
    int count = 0;
    do {
        count++;
        n /= 10;
    } while (n);
    return count;
}

static unsigned int gcd(unsigned int a, unsigned int b) {
    while (b != 0) {
        unsigned int rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

int main(void) {
    printf("%d %d %d\n", digits(0), digits(9), digits(4000000000u));
    printf("%u %u\n", gcd(1071, 462), gcd(17, 5));
    int i = 0, odd = 0;
    do {
        if (i % 2 == 0)
            continue;
        odd += i;
    } while (++i < 10);
    printf("%d %d\n", i, odd);
    while (i-- > 3)
        if (i == 5)
            break;
    printf("%d\n", i);
    int never = 0;
    while (0)
        never = 1;
    do
        never += 10;
    while (0);
    return never;
}
