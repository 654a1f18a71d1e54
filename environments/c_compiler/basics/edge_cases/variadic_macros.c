#include <stdio.h>

#define SHOW(...) printf(__VA_ARGS__)
#define LINE(format, ...) printf("[" format "]\n", __VA_ARGS__)
#define LIST(...) ((int[]){__VA_ARGS__})
#define COUNT(...) (sizeof LIST(__VA_ARGS__) / sizeof(int))
#define TEXT(...) #__VA_ARGS__
#define FIRST(a, ...) a
#define REST(a, ...) __VA_ARGS__
#define FIFTH(a, b, c, d, e, ...) e
#define HOW_MANY(...) FIFTH(__VA_ARGS__, 4, 3, 2, 1, 0)

int main(void) {
    SHOW("plain\n");
    SHOW("%d %s\n", 1, "two");
    LINE("%d-%d", 3, 4);
    printf("%d %d\n", LIST(7, 8, 9)[1], (int)COUNT(1, 2, 3, 4));
    printf("%s\n", TEXT(a, (b, c), "d"));
    printf("%d %d\n", FIRST(5, 6, 7), (REST(5, 6, 7)));
    printf("%d %d %d\n", HOW_MANY(a), HOW_MANY(a, b), HOW_MANY((a, b), c, d));
    return 0;
}
