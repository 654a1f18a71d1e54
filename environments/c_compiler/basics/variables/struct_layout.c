#include <stddef.h>
#include <stdio.h>

struct mixed {
    char a;
    int b;
    char c;
    double d;
    short e;
};

struct tail {
    long a;
    char b;
};

struct inner {
    char a;
    struct tail t;
    char b[3];
    short s;
};

union overlay {
    char bytes[5];
    int number;
    double real;
};

int main(void) {
    printf("%zu %zu %zu %zu %zu\n", offsetof(struct mixed, a), offsetof(struct mixed, b),
           offsetof(struct mixed, c), offsetof(struct mixed, d), offsetof(struct mixed, e));
    printf("%zu %zu %zu\n", sizeof(struct mixed), sizeof(struct tail), sizeof(struct inner));
    printf("%zu %zu %zu\n", offsetof(struct inner, t), offsetof(struct inner, b),
           offsetof(struct inner, s));
    printf("%zu %zu\n", sizeof(union overlay), _Alignof(union overlay));
    printf("%zu %zu\n", sizeof(struct tail[3]), offsetof(struct inner, t.b));
    return 0;
}
