#include "library/text.h"

#include <stdio.h>

int main(void) {
    char buffer[MAX_TEXT];
    printf("%d\n", text_repeat(buffer, "ab", 4));
    printf("%s %d %d\n", buffer, text_count(buffer, 'b'), MAX_TEXT);
    printf("%d\n", LIMIT_OF(3));
    return 0;
}
