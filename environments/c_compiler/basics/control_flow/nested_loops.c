int printf(const char *format, ...);

int main(void) {
    int visited = 0, skipped = 0;
    for (int i = 0; i < 10; i++) {
        if (i == 7)
            break;
        for (int j = 0;; j++) {
            if (j == i)
                break;
            if ((i + j) % 3 == 0) {
                skipped++;
                continue;
            }
            for (int k = 5; k > 0; k--) {
                if (k == j)
                    continue;
                if (k < i - 3)
                    break;
                visited++;
            }
        }
    }
    printf("%d %d\n", visited, skipped);
    int n = 0;
    for (;;)
        if (++n > 20)
            break;
    printf("%d\n", n);
    return n - visited % 10;
}
