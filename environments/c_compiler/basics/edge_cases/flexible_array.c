#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct text {
    unsigned int length;
    char data[];
};

struct series {
    int count;
    double values[];
};

static struct text *make(const char *s) {
    unsigned int n = (unsigned int)strlen(s);
    struct text *t = malloc(sizeof *t + n + 1);
    if (t == NULL)
        exit(1);
    t->length = n;
    memcpy(t->data, s, n + 1);
    return t;
}

int main(void) {
    struct text *t = make("flexible");
    struct series *s = malloc(sizeof *s + 4 * sizeof s->values[0]);
    if (s == NULL)
        return 1;
    s->count = 4;
    for (int i = 0; i < s->count; i++)
        s->values[i] = i / 2.0;
    printf("%u %s %c\n", t->length, t->data, t->data[4]);
    printf("%d %d\n", (int)sizeof(struct text), (int)sizeof(struct series));
    printf("%.1f %.1f\n", s->values[1], s->values[3]);
    free(t);
    free(s);
    return 0;
}
