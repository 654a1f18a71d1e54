#include "stack.h"

#include <stdlib.h>

struct stack {
    long *values;
    int used, size;
};

struct stack *stack_new(void) {
    struct stack *s = calloc(1, sizeof *s);
    if (s == NULL)
        abort();
    return s;
}

void stack_push(struct stack *s, long value) {
    if (s->used == s->size) {
        s->size = s->size ? s->size * 2 : 1;
        s->values = realloc(s->values, (size_t)s->size * sizeof *s->values);
        if (s->values == NULL)
            abort();
    }
    s->values[s->used++] = value;
}

long stack_pop(struct stack *s) { return s->values[--s->used]; }

int stack_size(const struct stack *s) { return s->used; }

void stack_each(const struct stack *s, void (*visit)(long value, void *context), void *context) {
    for (int i = 0; i < s->used; i++)
        visit(s->values[i], context);
}

void stack_free(struct stack *s) {
    free(s->values);
    free(s);
}
