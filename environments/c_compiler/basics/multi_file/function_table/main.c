#include "operations.h"

#include <stdio.h>

int main(void) {
    for (int i = 0; i < operation_count; i++)
        printf("%s(9, 4) = %d\n", operations[i].name, operations[i].run(9, 4));
    const struct operation *found = operation_named("power");
    printf("%d %d\n", found ? found->run(3, 5) : -1, operation_named("none") == NULL);
    printf("%d\n", found->run == power);
    return 0;
}
