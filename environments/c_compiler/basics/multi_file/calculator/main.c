#include "evaluate.h"

#include <stdio.h>

int main(void) {
    const char *lines[] = {"2 + 3 * 4", "(2 + 3) * 4", "10 / 4", "8 / (5 - 5)", "7 +", "2 $ 2", "((1))",
                           "-3 * -(2 + 1)"};
    int failed = 0;
    for (unsigned int i = 0; i < sizeof lines / sizeof *lines; i++) {
        struct result r = evaluate(lines[i]);
        if (r.problem) {
            printf("%s: %s\n", lines[i], r.problem);
            failed++;
        } else {
            printf("%s = %ld\n", lines[i], r.value);
        }
    }
    return failed;
}
