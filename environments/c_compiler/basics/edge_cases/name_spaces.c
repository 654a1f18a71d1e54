/* Tags, members, labels and ordinary names do not get in each other's way. */
int printf(const char *format, ...);

struct name {
    int name;
    struct name *next;
};

typedef struct list list;
struct list {
    int list;
};

static int value(int value) { return value + 1; }

int main(void) {
    struct name name = {1, 0};
    name.next = &name;
    enum kind { one, two } kind = two;
    list l = {4};
    goto name;
name:
    name.name++;
    {
        struct name {
            char other;
        } name = {'x'};
        struct kind {
            int one;
        };
        struct kind one = {7};
        printf("%c %d %d\n", name.other, one.one, (int)sizeof(struct name));
    }
    {
        int list = l.list;
        list = list * list;
        printf("%d\n", list);
    }
    list list = {5};
    printf("%d %d %d %d\n", name.next->name, kind, value(list.list), one);
    return 0;
}
