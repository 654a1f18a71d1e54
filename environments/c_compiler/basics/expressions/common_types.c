/* What type an expression has after the usual arithmetic conversions. */
int printf(const char *format, ...);

#define TYPE(e) \
    _Generic((e), int: "int", unsigned int: "unsigned int", long: "long", \
             unsigned long: "unsigned long", long long: "long long", float: "float", \
             double: "double", char *: "char *", int *: "int *", default: "other")

int main(void) {
    char c = 'c';
    short s = 1;
    unsigned short us = 1;
    int i = 1;
    unsigned int u = 1;
    long l = 1;
    unsigned long ul = 1;
    long long ll = 1;
    float f = 1;
    double d = 1;
    int list[3] = {0};
    printf("%s, %s, %s\n", TYPE(c + c), TYPE(s * us), TYPE(+us));
    printf("%s, %s, %s\n", TYPE(i + u), TYPE(u + l), TYPE(l + ul));
    printf("%s, %s, %s\n", TYPE(l + ll), TYPE(i + f), TYPE(f + d));
    printf("%s, %s, %s\n", TYPE(i < u), TYPE(l << i), TYPE(s << l));
    printf("%s, %s, %s\n", TYPE(1 ? i : l), TYPE(!d), TYPE(ul ? 1 : 2.0f));
    printf("%s, %s, %s\n", TYPE('x'), TYPE(2147483648), TYPE(0xffffffff));
    printf("%s, %s, %s\n", TYPE(1u), TYPE(1.f), TYPE(1ul));
    printf("%s, %s, %s\n", TYPE(&list[1]), TYPE(&list[2] - list), TYPE("text" + 1));
    printf("%s, %s\n", TYPE(sizeof i), TYPE((i, l)));
    return 0;
}
