int printf(const char *format, ...);

struct point {
    int x, y;
};

static int length(struct point p) { return p.x * p.x + p.y * p.y; }
static int first(const int *list) { return list[0]; }
static void bump(struct point *p) { p->x++; }

struct point *global = &(struct point){8, 9};

int main(void) {
    struct point p = (struct point){3, 4};
    int *list = (int[]){7, 8, 9};
    printf("%d %d\n", length(p), length((struct point){.y = 2}));
    printf("%d %d\n", first((int[2]){6}), list[2]);
    struct point *q = &(struct point){1, 2};
    bump(q);
    printf("%d %d %d\n", q->x, q->y, global->y);
    p = (struct point){p.y, p.x};
    printf("%d %d\n", p.x, p.y);
    printf("%s %d\n", (char[]){"text"}, (int)sizeof((int[]){1, 2, 3}));
    printf("%d\n", ((struct point){.x = 5}).x + (int){10});
    return 0;
}
