int printf(const char *format, ...);

struct counted {
    int n;
    unsigned char small;
    int list[3];
};

int main(void) {
    int i = 5;
    printf("%d ", i++);
    printf("%d ", ++i);
    printf("%d ", i--);
    printf("%d\n", --i);
    int list[] = {10, 20, 30, 40};
    int *p = list;
    printf("%d ", *p++);
    printf("%d ", *++p);
    printf("%d ", (*p)++);
    printf("%d ", ++*p);
    printf("%d\n", *p--);
    printf("%d %d\n", p[0], list[2]);
    struct counted c = {1, 255, {7, 8, 9}}, *q = &c;
    q->n++;
    ++q->small;
    --c.list[1];
    printf("%d ", c.list[q->n--]++);
    printf("%d %d %d %d\n", c.n, c.small, c.list[1], c.list[2]);
    double d = 0.5;
    d++;
    --d;
    ++d;
    printf("%.1f\n", d--);
    float f = 1.25f;
    printf("%.2f\n", ++f);
    unsigned int u = 0;
    u--;
    long wide = 2147483647;
    wide++;
    printf("%u %ld\n", u, wide);
    return - -i;
}
