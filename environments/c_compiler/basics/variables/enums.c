int printf(const char *format, ...);

enum colour { RED, GREEN = 5, BLUE, LAST = BLUE + 10, NEGATIVE = -3, AFTER };
typedef enum { OFF, ON } state;
enum { BITS = 1 << 4, SIZE = BITS / 2 };

static const char *name(enum colour c) {
    switch (c) {
    case RED:
        return "red";
    case GREEN:
        return "green";
    case BLUE:
        return "blue";
    default:
        return "other";
    }
}

int main(void) {
    enum colour c = BLUE;
    state s = ON;
    int sizes[SIZE];
    printf("%d %d %d %d %d %d\n", RED, GREEN, BLUE, LAST, NEGATIVE, AFTER);
    printf("%s %s %s\n", name(c), name(RED), name(LAST));
    printf("%d %d %d\n", s, (int)(sizeof sizes / sizeof sizes[0]), (int)sizeof(enum colour));
    c = (enum colour)(c - 1);
    s = !s;
    {
        enum { RED = 77 };
        printf("%d\n", RED);
    }
    printf("%s %d %d\n", name(c), s, RED);
    return 0;
}
