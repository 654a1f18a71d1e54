int printf(const char *format, ...);

static int sum(int list[], int n) {
    int total = 0;
    while (n--)
        total += *list++;
    return total;
}

static void fill(int list[static 3], const int n, int value) {
    for (int i = 0; i < n; i++)
        list[i] = value + i;
}

static void transpose(int m[3][3]) {
    for (int r = 0; r < 3; r++)
        for (int c = r + 1; c < 3; c++) {
            int t = m[r][c];
            m[r][c] = m[c][r];
            m[c][r] = t;
        }
}

static int trace(int (*m)[3]) { return m[0][0] + m[1][1] + (*(m + 2))[2]; }

static int size_inside(char text[100]) { return (int)sizeof(text) == (int)sizeof(char *); }

static int count(const char *const words[], char letter) {
    int n = 0;
    for (; *words; words++)
        for (const char *p = *words; *p; p++)
            n += *p == letter;
    return n;
}

int main(void) {
    int list[5];
    char big[100] = "big";
    int m[3][3] = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}};
    const char *words[] = {"banana", "cabana", "", "a", 0};
    fill(list, 5, 10);
    printf("%d %d\n", sum(list, 5), sum(list + 2, 2));
    transpose(m);
    printf("%d %d %d\n", m[0][2], m[2][0], trace(m));
    printf("%d %d\n", size_inside(big), count(words, 'a'));
    fill(&m[1][0], 3, 0);
    printf("%d %d %d\n", m[0][2], m[1][1], m[2][0]);
    return 0;
}
