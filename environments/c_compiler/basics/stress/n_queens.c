int printf(const char *format, ...);

static int place(int n, int row, int *columns) {
    int solutions = 0;
    if (row == n)
        return 1;
    for (int c = 0; c < n; c++) {
        int safe = 1;
        for (int r = 0; r < row && safe; r++) {
            int distance = columns[r] - c;
            if (distance == 0 || distance == row - r || distance == r - row)
                safe = 0;
        }
        if (safe) {
            columns[row] = c;
            solutions += place(n, row + 1, columns);
        }
    }
    return solutions;
}

static long by_bits(unsigned int all, unsigned int columns, unsigned int left, unsigned int right) {
    long solutions = 0;
    if (columns == all)
        return 1;
    for (unsigned int free = all & ~(columns | left | right); free;) {
        unsigned int bit = free & -free;
        free ^= bit;
        solutions += by_bits(all, columns | bit, (left | bit) << 1, (right | bit) >> 1);
    }
    return solutions;
}

int main(void) {
    int columns[16];
    for (int n = 1; n <= 8; n++)
        printf("%d ", place(n, 0, columns));
    printf("end\n%ld\n", by_bits((1u << 10) - 1, 0, 0, 0));
    return 0;
}
