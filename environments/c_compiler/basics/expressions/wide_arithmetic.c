int printf(const char *format, ...);

static unsigned long power_modulo(unsigned long base, unsigned long exponent, unsigned long m) {
    unsigned long result = 1;
    for (base %= m; exponent; exponent >>= 1) {
        if (exponent & 1)
            result = result * base % m;
        base = base * base % m;
    }
    return result;
}

static unsigned long next(unsigned long *state) {
    *state = *state * 6364136223846793005ul + 1442695040888963407ul;
    return *state >> 33;
}

int main(void) {
    long a = 3000000000L, b = -7;
    unsigned long state = 1;
    printf("%ld %ld %ld %ld\n", a * 3, a / b, a % b, a * b);
    printf("%ld %ld\n", 2147483647L + 1, -2147483648L - 1);
    printf("%lld\n", 123456789LL * 987654321LL);
    printf("%lu %lu\n", power_modulo(3, 1000000, 1000000007), power_modulo(2, 62, ~0u));
    for (int i = 0; i < 4; i++)
        printf("%lu ", next(&state));
    printf("end\n");
    printf("%lx %lx\n", 0xffffffffUL * 0xffffffffUL, 0xffffffffUL << 4);
    printf("%ld\n", (long)2147483647 * 2147483647);
    printf("%d\n", (int)(10000000000L / 1000000000));
    long sum = 0;
    for (long i = 4294967290L; i < 4294967300L; i++)
        sum += i;
    printf("%ld\n", sum);
    return 0;
}
