#include <stdalign.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct padded {
    char c;
    alignas(16) int aligned;
    char d;
};

static _Alignas(16) char buffer[10];

int main(void) {
    alignas(16) char local[3] = "ab";
    char before = 'x';
    alignas(double) unsigned char space[sizeof(double)] = {0};
    printf("%d %d %d\n", (int)alignof(int), (int)_Alignof(double), (int)alignof(struct padded));
    printf("%d %d\n", (int)offsetof(struct padded, aligned), (int)sizeof(struct padded));
    printf("%d %d %d\n", (int)((uintptr_t)buffer % 16), (int)((uintptr_t)local % 16),
           (int)((uintptr_t)space % alignof(double)));
    printf("%s %c %d\n", local, before, space[0]);
    return 0;
}
