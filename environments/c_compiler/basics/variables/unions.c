int printf(const char *format, ...);

union number {
    unsigned int word;
    unsigned char bytes[4];
    float real;
};

struct tagged {
    enum { INTEGER, REAL, TEXT } kind;
    union {
        long integer;
        double real;
        const char *text;
    };
};

static void show(struct tagged t) {
    switch (t.kind) {
    case INTEGER:
        printf("integer %ld\n", t.integer);
        break;
    case REAL:
        printf("real %.3f\n", t.real);
        break;
    case TEXT:
        printf("text %s\n", t.text);
        break;
    }
}

int main(void) {
    union number n;
    n.word = 0x01020304u;
    printf("%d %d %d %d\n", n.bytes[0], n.bytes[1], n.bytes[2], n.bytes[3]);
    n.bytes[1] = 0xff;
    printf("%x\n", n.word);
    n.real = 1.0f;
    printf("%x\n", n.word);
    union number copy = n;
    copy.word |= 0x80000000u;
    printf("%.1f\n", copy.real);
    struct tagged all[3] = {{INTEGER, {-5}}, {REAL, {.real = 2.5}}, {TEXT, {.text = "union"}}};
    for (int i = 0; i < 3; i++)
        show(all[i]);
    printf("%d %d\n", (int)sizeof(union number), (int)sizeof(struct tagged));
    return 0;
}
