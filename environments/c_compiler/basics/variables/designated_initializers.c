int printf(const char *format, ...);

struct item {
    int id;
    struct {
        int width, height;
    } size;
    int list[4];
};

int main(void) {
    int sparse[10] = {[2] = 5, 6, [8] = 1, [0] = 9};
    int open[] = {[5] = 50, [1] = 10};
    int override[3] = {[1] = 4, [0] = 2, 3};
    struct item one = {.size.height = 3, .id = 7, .list = {[1] = 11, 12}};
    struct item many[3] = {[1] = {.id = 1, .size = {4, 5}}, [2].list[3] = 8};
    const char *names[] = {[1] = "one", [0] = "zero"};
    for (int i = 0; i < 10; i++)
        printf("%d%c", sparse[i], i == 9 ? '\n' : ' ');
    printf("%d %d %d\n", (int)(sizeof open / sizeof *open), open[1], open[5]);
    printf("%d %d %d\n", override[0], override[1], override[2]);
    printf("%d %d %d %d %d\n", one.id, one.size.width, one.size.height, one.list[1], one.list[2]);
    printf("%d %d %d\n", many[1].size.height, many[2].list[3], many[0].id);
    printf("%s %s\n", names[0], names[1]);
    return 0;
}
