#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct buffer {
    char *data;
    size_t used, size;
};

static void put(struct buffer *b, const char *text, size_t n) {
    if (b->used + n + 1 > b->size) {
        b->size = (b->used + n + 1) * 2;
        b->data = realloc(b->data, b->size);
        if (b->data == NULL)
            exit(1);
    }
    memcpy(b->data + b->used, text, n);
    b->used += n;
    b->data[b->used] = '\0';
}

static void number(struct buffer *b, long n) {
    char digits[24];
    int at = sizeof digits;
    unsigned long m = n < 0 ? -(unsigned long)n : (unsigned long)n;
    do
        digits[--at] = (char)('0' + m % 10);
    while (m /= 10);
    if (n < 0)
        digits[--at] = '-';
    put(b, digits + at, sizeof digits - (size_t)at);
}

static void reverse(char *s, size_t n) {
    for (size_t i = 0; i < n / 2; i++) {
        char t = s[i];
        s[i] = s[n - 1 - i];
        s[n - 1 - i] = t;
    }
}

int main(void) {
    struct buffer b = {0};
    for (long i = -2000; i <= 20000; i += 7) {
        number(&b, i * i * (i < 0 ? -1 : 1));
        put(&b, ", ", 2);
    }
    printf("%zu [%.20s]\n", b.used, b.data);
    unsigned long counts[256] = {0}, hash = 5381;
    for (const char *p = b.data; *p; p++) {
        counts[(unsigned char)*p]++;
        hash = hash * 33 + (unsigned char)*p;
    }
    printf("%lu %lu %lu %lx\n", counts['0'], counts['-'], counts[','], hash);
    reverse(b.data, b.used);
    printf("[%.20s]\n", b.data);
    int words = 0, inside = 0;
    for (size_t i = 0; i < b.used; i++) {
        int digit = isdigit((unsigned char)b.data[i]) != 0;
        words += digit && !inside;
        inside = digit;
    }
    printf("%d\n", words);
    char *found = strstr(b.data, "001 ,");
    printf("%d %d\n", found != NULL, strncmp(b.data, " ,", 2));
    free(b.data);
    return 0;
}
