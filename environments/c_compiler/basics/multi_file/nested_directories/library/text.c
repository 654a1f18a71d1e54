#include "text.h"

int text_repeat(char *to, const char *what, int times) {
    int used = 0;
    for (int i = 0; i < times; i++)
        for (const char *p = what; *p && used < MAX_TEXT - 1; p++)
            to[used++] = *p;
    to[used] = '\0';
    return used;
}

int text_count(const char *text, char c) {
    int n = 0;
    for (; *text; text++)
        n += *text == c;
    return n;
}
