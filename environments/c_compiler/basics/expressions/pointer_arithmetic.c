int printf(const char *format, ...);

struct item {
    int id;
    double value;
};

int main(void) {
    int list[10];
    struct item items[3] = {{1, 1.5}, {2, 2.5}, {3, 3.5}};
    char text[] = "pointer";
    long count = 2;
    for (int i = 0; i < 10; i++)
        *(list + i) = i * i;
    int *p = list + 9, *q = &list[2];
    printf("%d %d\n", (int)(p - q), (int)((char *)p - (char *)q));
    printf("%d %d %d\n", *(p - 4), p[-1], *(3 + q));
    struct item *it = items;
    it += count;
    printf("%d %.1f %.1f\n", it->id, it[-1].value, (it - 2)->value);
    printf("%d\n", (int)((char *)&items[1] - (char *)&items[0]));
    char *c = text + 7;
    while (c-- != text)
        printf("%c", *c);
    printf("\n");
    int grid[4][6];
    int *cell = &grid[0][0];
    for (int i = 0; i < 6; i++)
        cell[i] = i;
    printf("%d %d\n", grid[0][5], (int)(&grid[3] - &grid[1]));
    printf("%d\n", (int)((char *)(grid + 1) - (char *)grid));
    unsigned char index = 3;
    printf("%d %d\n", list[index], *(list + index + 1));
    const char *s = "abc" + 1;
    printf("%s %d\n", s, &s[1] - s == 1);
    int(*whole)[10] = &list;
    printf("%d %d\n", (*whole)[4], (int)((char *)(whole + 1) - (char *)whole));
    return 0;
}
