int printf(const char *format, ...);

static int is_odd(unsigned int n);
int male(int n);

static int is_even(unsigned int n) { return n == 0 ? 1 : is_odd(n - 1); }

static int is_odd(unsigned int n) { return n == 0 ? 0 : is_even(n - 1); }

int female(int n) { return n == 0 ? 1 : n - male(female(n - 1)); }

int male(int n) { return n == 0 ? 0 : n - female(male(n - 1)); }

int main(void) {
    printf("%d %d %d\n", is_even(100), is_odd(77), is_even(13));
    for (int i = 0; i < 12; i++)
        printf("%d/%d ", female(i), male(i));
    printf("end\n");
    return 0;
}
