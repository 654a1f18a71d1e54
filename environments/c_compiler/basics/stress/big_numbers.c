int printf(const char *format, ...);

#define CELLS 300

struct number {
    int used;
    unsigned int cells[CELLS];
};

static void set(struct number *n, unsigned int value) {
    n->used = 1;
    n->cells[0] = value;
}

static void times(struct number *n, unsigned int by) {
    unsigned long carry = 0;
    for (int i = 0; i < n->used; i++) {
        carry += (unsigned long)n->cells[i] * by;
        n->cells[i] = (unsigned int)(carry % 1000000000);
        carry /= 1000000000;
    }
    if (carry)
        n->cells[n->used++] = (unsigned int)carry;
}

static struct number sum(struct number a, const struct number *b) {
    unsigned int carry = 0;
    for (int i = 0; i < a.used || i < b->used || carry; i++) {
        unsigned int x = i < a.used ? a.cells[i] : 0, y = i < b->used ? b->cells[i] : 0;
        unsigned int s = x + y + carry;
        carry = s >= 1000000000;
        if (i >= a.used)
            a.used = i + 1;
        a.cells[i] = carry ? s - 1000000000 : s;
    }
    return a;
}

static void show(const struct number *n) {
    printf("%u", n->cells[n->used - 1]);
    for (int i = n->used - 2; i >= 0; i--)
        printf("%09u", n->cells[i]);
    printf("\n");
}

int main(void) {
    struct number f, a, b;
    set(&f, 1);
    for (unsigned int i = 2; i <= 100; i++)
        times(&f, i);
    show(&f);
    set(&a, 0);
    set(&b, 1);
    for (int i = 0; i < 1000; i++) {
        struct number next = sum(a, &b);
        a = b;
        b = next;
    }
    show(&a);
    set(&f, 1);
    for (int i = 0; i < 4000; i++)
        times(&f, 2);
    int digits = 0;
    for (int i = 0; i < f.used; i++)
        for (unsigned int c = f.cells[i]; c; c /= 10)
            digits += (int)(c % 10);
    printf("%d %d\n", f.used, digits);
    return 0;
}
