int printf(const char *format, ...);

typedef unsigned long size;
typedef int row[3];
typedef row grid[2];
typedef struct node node;
struct node {
    int value;
    node *next;
};
typedef int (*operation)(int, int);
typedef operation *operations;
typedef char *text, letter;
int typedef long strange;

static int add(int a, int b) { return a + b; }
static int sub(int a, int b) { return a - b; }

int main(void) {
    grid g = {{1, 2, 3}, {4, 5, 6}};
    row *r = g;
    node last = {30, 0}, first = {12, &last};
    operation both[2] = {add, sub};
    operations ops = both;
    text t = "typed";
    letter l = t[1];
    strange long_one = 1L << 40;
    size bytes = sizeof(grid);
    printf("%d %d %lu\n", r[1][2], g[0][1], bytes);
    printf("%d %d %d\n", first.next->value, ops[0](5, 6), (*ops[1])(5, 6));
    printf("%s %c %ld\n", t, l, (long)long_one);
    return 0;
}
