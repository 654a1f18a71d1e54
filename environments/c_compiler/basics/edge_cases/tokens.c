/* The longest possible token is taken, and lines can be continued anywhere. */
#include <stdio.h>

#define LONG_ONE 1 + \
    2 + \
    3

int ma\
in(void) {
    int a = 5, b = 2;
    int c = a+++b;
    int d = a-- - --b;
    int e = a - -b;
    int *p = &b;
    int f = a/ *p;
    printf("%d %d %d %d %d %d\n", a, b, c, d, e, f);
    printf("%d\n", LONG_ONE);
    printf("conti\
nued\n");
    // a comment that goes on \
    printf("unreachable\n");
    printf("%d\n", 1/**/+/* // */2);
    printf("%s\n", "/* no comment */ // neither");
    int list<:2:> = <%3, 4%>;
    printf("%d\n", list[1] %2);
    printf("%d %d\n", 0x1F + 0XaU, 1.e1 > .5e1f);
    ;;;
    {}
    return(c)-(7);
}
