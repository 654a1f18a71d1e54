int printf(const char *format, ...);

static void swap_texts(const char **a, const char **b) {
    const char *t = *a;
    *a = *b;
    *b = t;
}

static void move_on(int **cursor) { (*cursor)++; }

int main(void) {
    int value = 5;
    int *p = &value;
    int **pp = &p;
    int ***ppp = &pp;
    ***ppp = 6;
    **pp += 1;
    printf("%d %d %d\n", value, *p == **pp, *ppp == &p);
    const char *texts[3] = {"a", "bc", "def"};
    const char **t = texts;
    swap_texts(&texts[0], t + 2);
    printf("%s %s %s %c\n", t[0], *(t + 1), t[2], *(*t + 1));
    int numbers[] = {3, 1, 4, 1, 5};
    int *cursor = numbers;
    move_on(&cursor);
    move_on(&cursor);
    printf("%d %d\n", *cursor, (int)(cursor - numbers));
    int rows[2][2] = {{1, 2}, {3, 4}};
    int *heads[2] = {rows[0], rows[1]};
    int **table = heads;
    table[1][0] = 30;
    printf("%d %d\n", rows[1][0], heads[0][1]);
    void *any = &value;
    *(int *)any = 99;
    printf("%d %d\n", value, any == (void *)p);
    return 0;
}
