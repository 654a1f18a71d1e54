#include <stdio.h>

int main(void) {
    const char *all = "\a\b\f\n\r\t\v\\\'\"\?\0";
    unsigned char high[] = "\xff\x7f\377\1018\x4a" "b";
    for (int i = 0; i < 12; i++)
        printf("%d ", all[i]);
    printf("end\n");
    for (int i = 0; i < (int)sizeof high; i++)
        printf("%d ", high[i]);
    printf("end\n");
    printf("%d %d %d %d\n", '\0', '\x41', '\101', '\\');
    printf("%d %d\n", (int)sizeof "a\0b", (int)sizeof "\u00e9");
    printf("tab\tquote\"back\\slash 100%% \u00fcber\n");
    printf("%s\n", "one " "two "
                   "three" "" " four");
    printf("%d %d\n", 'a' == '\x61', '"' + '\'');
    return 0;
}
