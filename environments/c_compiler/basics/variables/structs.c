int printf(const char *format, ...);

struct point {
    int x;
    int y;
};

struct box {
    char name[6];
    struct point low, high;
    struct {
        unsigned char red, green, blue;
    } colour;
    double weight;
    struct box *inside;
};

int main(void) {
    struct box small = {"small", {1, 2}, {3, 4}, {10, 20, 30}, 0.5, 0};
    struct box big = small;
    struct box boxes[3] = {{"first", {1, 1}, {2, 2}, {1, 2, 3}, 1.0, 0}, small};
    struct box *p = &boxes[1];
    big.name[0] = 'S';
    big.high.y = 40;
    big.inside = &small;
    big.inside->low.x = -1;
    printf("%s %s %d %d\n", small.name, big.name, small.high.y, big.high.y);
    printf("%d %d %d\n", small.low.x, big.low.x, (*big.inside).low.x);
    printf("%s %d %.1f\n", p->name, p->colour.blue, (p - 1)->weight);
    printf("%d %d %d\n", boxes[2].name[0], boxes[2].high.x, boxes[2].inside == 0);
    p->low = big.high;
    boxes[2] = *p;
    printf("%d %d %s\n", boxes[2].low.x, boxes[2].low.y, boxes[2].name);
    printf("%d %d\n", (int)sizeof(struct point), (int)sizeof(struct box));
    return 0;
}
