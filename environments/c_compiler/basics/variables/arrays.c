int printf(const char *format, ...);

static int total(int rows, int cells[][4]) {
    int sum = 0;
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < 4; c++)
            sum += cells[r][c];
    return sum;
}

int main(void) {
    int grid[3][4] = {{1, 2, 3, 4}, {5, 6}, {9}};
    int flat[] = {1, 2, 3, 4, 5};
    int cube[2][3][2] = {{{1, 2}, {3, 4}, {5, 6}}, {{7, 8}, {9, 10}, {11, 12}}};
    int brief[2][2] = {1, 2, 3};
    char words[][6] = {"zero", "one", "three"};
    int(*row)[4] = grid + 1;
    printf("%d %d %d %d\n", grid[1][1], grid[1][2], grid[2][0], total(3, grid));
    printf("%d %d\n", (int)(sizeof flat / sizeof flat[0]), (int)sizeof grid[0]);
    printf("%d %d\n", cube[1][2][0], *(*(*(cube + 1) + 1) + 1));
    printf("%d %d\n", brief[1][0], brief[1][1]);
    printf("%s %s %c %d\n", words[1], words[2], words[0][3], (int)sizeof words);
    printf("%d %d\n", (*row)[0], row[1][0]);
    printf("%d %d\n", (int)(&grid[2][1] - &grid[2][0]), (int)(row - grid));
    3 [flat] = 44;
    printf("%d %d\n", flat[3], 1 [flat]);
    return 0;
}
