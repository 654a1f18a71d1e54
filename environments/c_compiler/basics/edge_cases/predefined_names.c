#include <stdio.h>
#include <string.h>

#define HERE __LINE__

static const char *my_name(void) { return __func__; }

int main(void) {
    int first = __LINE__, second = HERE;
    printf("%d %d\n", first == second, __LINE__ - first);
    printf("%s %s %d\n", __func__, my_name(), (int)sizeof __func__);
    printf("%d\n", strstr(__FILE__, ".c") != NULL);
#line 500 "renamed.c"
    printf("%d %s\n", __LINE__, __FILE__);
    printf("%d %d\n", (int)strlen(__DATE__), (int)strlen(__TIME__));
    printf("%d %d\n", __STDC__, __STDC_HOSTED__);
    return 0;
}
