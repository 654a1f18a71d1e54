int printf(const char *format, ...);

int x = 1;

static int global_x(void) { return x; }

int main(void) {
    printf("%d\n", x);
    int x = 2;
    printf("%d\n", x);
    {
        int x = 3;
        printf("%d\n", x);
        {
            extern int x;
            printf("%d\n", x);
            x = 10;
        }
        x++;
        printf("%d\n", x);
    }
    for (int x = 5; x < 6; x++) {
        printf("%d\n", x);
        int x = 7;
        printf("%d\n", x);
    }
    printf("%d %d\n", x, global_x());
    typedef int number;
    number n = 4;
    {
        int number = 8;
        n += number;
    }
    number m = n;
    printf("%d\n", m);
    return 0;
}
