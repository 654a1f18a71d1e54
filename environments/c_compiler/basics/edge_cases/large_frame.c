int printf(const char *format, ...);

static int busy(int seed) {
    int big[20000];
    char more[70000];
    for (int i = 0; i < 20000; i++)
        big[i] = i ^ seed;
    for (int i = 0; i < 70000; i++)
        more[i] = (char)(i % 100);
    return big[19999] + more[69999] + big[0] + more[12345];
}

int main(void) {
    long first = 1;
    long cells[4096] = {[4095] = 9};
    printf("%d %d\n", busy(0), busy(4096));
    printf("%ld %ld %ld\n", first, cells[0], cells[4095]);
    return 0;
}
