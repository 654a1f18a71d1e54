int printf(const char *format, ...);

extern int counter;
extern const char *const names[];
extern int grid[2][3];
extern double ratio;
int owned = 7;

void bump(int by);
int read_owned(void);

int main(void) {
    bump(3);
    counter *= 2;
    bump(1);
    grid[1][2] += 10;
    owned++;
    printf("%d %s %s %d %.2f\n", counter, names[0], names[1], grid[1][2], ratio);
    printf("%d\n", read_owned());
    return 0;
}
