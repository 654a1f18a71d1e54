int printf(const char *format, ...);

char exact[3] = {'a', 'b', 'c'};
char counted[] = "four";
char cut[4] = "cut";

int main(void) {
    char local[] = "local";
    const char *literal = "literal";
    char copy[10] = {0};
    int i = 0;
    local[0] = 'v';
    while ((copy[i] = literal[i]) != '\0')
        i++;
    printf("%d %d %d\n", (int)sizeof exact, (int)sizeof counted, (int)sizeof cut);
    printf("%s %s %d\n", local, copy, i);
    printf("%c%c%c %s\n", exact[0], exact[1], exact[2], cut);
    printf("%d %c %c\n", (int)sizeof "abc", "hello"[1], *("xyz" + 2));
    char letters[2][3] = {"ab", {'c', 'd'}};
    printf("%s %s\n", letters[0], letters[1]);
    const char *end = literal;
    while (*end)
        end++;
    printf("%d %s\n", (int)(end - literal), end - 3);
    return 0;
}
