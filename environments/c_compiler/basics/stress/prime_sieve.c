int printf(const char *format, ...);

#define LIMIT 2000000

static unsigned char composite[LIMIT + 1];

int main(void) {
    int count = 0, last = 0;
    long sum = 0;
    for (int i = 2; i <= LIMIT; i++) {
        if (composite[i])
            continue;
        count++;
        last = i;
        sum += i;
        for (long j = (long)i * i; j <= LIMIT; j += i)
            composite[j] = 1;
    }
    printf("%d %d %ld\n", count, last, sum);
    return 0;
}
