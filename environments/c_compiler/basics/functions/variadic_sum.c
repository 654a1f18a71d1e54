#include <stdarg.h>
#include <stdio.h>

static long sum(int count, ...) {
    va_list list;
    long total = 0;
    va_start(list, count);
    for (int i = 0; i < count; i++)
        total += va_arg(list, int);
    va_end(list);
    return total;
}

static double mean(int count, ...) {
    va_list list;
    double total = 0;
    va_start(list, count);
    for (int i = 0; i < count; i++)
        total += va_arg(list, double);
    va_end(list);
    return total / count;
}

static int longest(const char *first, ...) {
    va_list list, again;
    int length = 0, most = 0;
    va_start(list, first);
    va_copy(again, list);
    for (const char *s = first; s; s = va_arg(list, const char *)) {
        for (length = 0; s[length]; length++)
            ;
        if (length > most)
            most = length;
    }
    va_end(list);
    const char *second = va_arg(again, const char *);
    va_end(again);
    return most * 10 + (second ? second[0] == 'm' : 0);
}

int main(void) {
    printf("%ld %ld\n", sum(0), sum(3, 10, 20, -5));
    printf("%ld\n", sum(12, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12));
    printf("%.3f\n", mean(4, 1.0, 2.5, 3.0, 4.0));
    printf("%.3f\n", mean(11, 1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 11.));
    printf("%d %d\n", longest("a", "middle", "abc", (char *)0), longest("alone", (char *)0));
    return 0;
}
