/* The same function may be declared often, in blocks too, and before it is defined. */
int printf(const char *, ...);

int first(int);
int first(int named);
extern int first(const int);
int second(void), third(int a, int (*callback)(void));
static int hidden(int);

int main(void) {
    int later(int);
    extern int value;
    printf("%d %d %d %d\n", first(1), third(4, second), hidden(9), later(value));
    return second();
}

int first(int x) { return x + 1; }
int second(void) { return 20; }
int third(int a, int callback(void)) { return a * callback(); }
int hidden(int x) { return -x; }
int later(int x) { return x / 2; }
int value = 500;
