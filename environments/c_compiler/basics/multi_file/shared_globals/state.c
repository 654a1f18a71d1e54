int counter = 1;
const char *const names[] = {"first", "second"};
int grid[2][3] = {{1, 2, 3}, {4, 5, 6}};
double ratio = 0.75;

extern int owned;

void bump(int by) {
    counter += by;
    ratio /= 2;
}

int read_owned(void) { return owned * 100 + grid[1][2]; }
