#include "tokens.h"

#include <ctype.h>
#include <string.h>

struct token next_token(const char **at) {
    struct token t = {END, 0};
    while (isspace((unsigned char)**at))
        ++*at;
    if (**at == '\0')
        return t;
    if (isdigit((unsigned char)**at)) {
        t.kind = NUMBER;
        while (isdigit((unsigned char)**at))
            t.value = t.value * 10 + (*(*at)++ - '0');
        return t;
    }
    t.kind = strchr("+-*/()", **at) ? SYMBOL : BAD;
    t.value = *(*at)++;
    return t;
}
