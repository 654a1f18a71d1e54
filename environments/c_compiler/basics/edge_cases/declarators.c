int printf(const char *format, ...);

static int numbers[3] = {1, 2, 3};
static int add(int a, int b) { return a + b; }
static int (*get_array(void))[3] { return &numbers; }
static int (*(*get_getter(void))(void))[3] { return get_array; }
static int (*pick(int n, int (*f)(int, int)))(int, int) { return n ? f : (int (*)(int, int))0; }

static int *(*table[2])(int *) = {0};
static int *same(int *p) { return p; }

int (x), (*(y)), z[2], *(w[2]), (*v)[2];
const int unsigned long static constant = 8;

static int takes(int (a), int (*)(int), int[]);
static int id(int i) { return i; }
static int takes(int a, int f(int), int list[]) { return f(a) + list[0]; }

int main(void) {
    int *p = *get_array();
    int(*(*q)(void))[3] = get_getter();
    char *(*(*deep)[2])(int) = 0;
    y = &x;
    *y = 5;
    v = &z;
    (*v)[1] = 6;
    w[1] = z;
    table[1] = same;
    printf("%d %d %d\n", p[2], (*q())[1], (*get_getter()())[0]);
    printf("%d %d\n", pick(1, add)(3, 4), pick(0, add) == 0);
    printf("%d %d %d %d\n", x, w[1][1], *table[1](&x), (int)constant);
    printf("%d %d\n", takes(4, id, z + 1), deep == 0);
    printf("%d %d\n", (int)sizeof(int(*(*)(void))[3]), (int)sizeof(int[2][3]));
    return 0;
}
