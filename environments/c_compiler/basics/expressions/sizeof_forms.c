int printf(const char *format, ...);

struct s {
    char c;
    int i;
};

static int calls;
static int touch(void) {
    calls++;
    return 0;
}

int main(void) {
    int list[7];
    int grid[3][5];
    char text[] = "sized";
    struct s many[4], *p = many;
    double d = 0;
    printf("%d %d %d\n", (int)sizeof list, (int)sizeof(grid), (int)sizeof grid[0]);
    printf("%d %d\n", (int)sizeof text, (int)sizeof "literal");
    printf("%d %d %d\n", (int)sizeof(struct s), (int)sizeof many, (int)sizeof *p);
    printf("%d %d %d\n", (int)sizeof p, (int)sizeof p->i, (int)sizeof &list);
    printf("%d %d %d\n", (int)sizeof(int *[3]), (int)sizeof(int(*)[3]), (int)sizeof(char[2][3]));
    printf("%d %d %d\n", (int)sizeof(d + 1), (int)sizeof(1 + 1L), (int)sizeof 1.0f);
    printf("%d %d\n", (int)sizeof touch(), calls);
    int i = 5;
    int size = sizeof(i++);
    printf("%d %d\n", size, i);
    printf("%d\n", sizeof(int) - 5 > 0);
    printf("%d\n", (int)(sizeof(list) / sizeof(list[0])) - (int)sizeof(char));
    return 0;
}
