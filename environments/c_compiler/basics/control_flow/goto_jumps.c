int printf(const char *format, ...);

static int find(int wanted) {
    int cells[4][5];
    int at = -1;
    for (int i = 0; i < 20; i++)
        cells[i / 5][i % 5] = i * i;
    for (int r = 0; r < 4; r++)
        for (int c = 0; c < 5; c++)
            if (cells[r][c] == wanted) {
                at = r * 10 + c;
                goto found;
            }
    return -1;
found:
    return at;
}

static int machine(const char *input) {
    int words = 0;
start:
    switch (*input) {
    case 0:
        goto end;
    case ' ':
        input++;
        goto start;
    default:
        words++;
        goto inside;
    }
inside:
    if (*input == 0)
        goto end;
    if (*input++ == ' ')
        goto start;
    goto inside;
end:
    return words;
}

int main(void) {
    int i = 0, sum = 0;
again:
    if (i >= 10)
        goto done;
    sum += i++;
    goto again;
done:
    printf("%d\n", sum);
    printf("%d %d %d\n", find(49), find(361), find(50));
    printf("%d %d %d\n", machine(""), machine("  one two  three "), machine("four"));
    goto into;
    for (i = 0; i < 3; i++) {
        printf("loop %d\n", i);
    into:
        printf("inside %d\n", i >= 10);
        if (i >= 10)
            i = 0;
    }
    return 0;
}
