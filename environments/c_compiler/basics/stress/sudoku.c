int printf(const char *format, ...);

static int grid[81];
static int rows[9], columns[9], boxes[9];
static long tried;

static int box(int cell) { return cell / 27 * 3 + cell % 9 / 3; }

static void mark(int cell, int digit, int on) {
    int bit = 1 << digit;
    if (on) {
        rows[cell / 9] |= bit, columns[cell % 9] |= bit, boxes[box(cell)] |= bit;
        grid[cell] = digit;
    } else {
        rows[cell / 9] &= ~bit, columns[cell % 9] &= ~bit, boxes[box(cell)] &= ~bit;
        grid[cell] = 0;
    }
}

static int solve(int cell) {
    while (cell < 81 && grid[cell])
        cell++;
    if (cell == 81)
        return 1;
    int taken = rows[cell / 9] | columns[cell % 9] | boxes[box(cell)];
    for (int digit = 1; digit <= 9; digit++) {
        if (taken >> digit & 1)
            continue;
        tried++;
        mark(cell, digit, 1);
        if (solve(cell + 1))
            return 1;
        mark(cell, digit, 0);
    }
    return 0;
}

int main(void) {
    const char *puzzle = "81....2.42...89.....6..4..."
                         "36..1...8...9.......863..42"
                         ".21.6.453..3...6..6..5...2.";
    for (int i = 0; i < 81; i++)
        if (puzzle[i] != '.')
            mark(i, puzzle[i] - '0', 1);
    int solved = solve(0);
    for (int i = 0; solved && i < 81; i++)
        printf("%d%s", grid[i], i % 9 == 8 ? "\n" : "");
    printf("%d %ld\n", solved, tried);
    return 0;
}
