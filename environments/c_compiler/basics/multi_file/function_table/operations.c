#include "operations.h"

#include <string.h>

static int sum(int a, int b) { return a + b; }

const struct operation operations[] = {{"sum", sum}, {"difference", difference}, {"power", &power}};
const int operation_count = sizeof operations / sizeof operations[0];

const struct operation *operation_named(const char *name) {
    for (int i = 0; i < operation_count; i++)
        if (strcmp(operations[i].name, name) == 0)
            return &operations[i];
    return NULL;
}
