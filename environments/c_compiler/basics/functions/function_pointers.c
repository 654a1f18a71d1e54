int printf(const char *format, ...);

typedef int (*binary)(int, int);

static int add(int a, int b) { return a + b; }
static int sub(int a, int b) { return a - b; }
static int mul(int a, int b) { return a * b; }

static const struct {
    char symbol;
    binary run;
} table[] = {{'+', add}, {'-', sub}, {'*', &mul}};

static binary choose(char symbol) {
    for (unsigned int i = 0; i < sizeof table / sizeof table[0]; i++)
        if (table[i].symbol == symbol)
            return table[i].run;
    return 0;
}

static int (*chosen(int first))(int, int) { return first ? add : sub; }

static int apply(int operation(int, int), int a, int b) { return operation(a, b); }

static int fold(binary f, int n, const int *list) {
    int value = list[0];
    for (int i = 1; i < n; i++)
        value = (*f)(value, list[i]);
    return value;
}

static int counter;
static void tick(void) { counter++; }
static void twice(void (*f)(void)) {
    f();
    (***f)();
}

int main(void) {
    int list[] = {10, 3, 2};
    int (*local[3])(int, int) = {add, sub, mul};
    printf("%d %d %d\n", choose('+')(1, 2), choose('*')(6, 7), choose('/') == 0);
    printf("%d %d\n", chosen(1)(5, 3), (*chosen(0))(5, 3));
    printf("%d %d %d\n", fold(add, 3, list), fold(local[1], 3, list), fold(*local[2], 3, list));
    printf("%d\n", apply(mul, 7, apply(&add, 1, 2)));
    twice(tick);
    binary f = add;
    binary *p = &f;
    printf("%d %d %d\n", counter, (*p)(4, 5), f == choose('+') && f != sub);
    return 0;
}
