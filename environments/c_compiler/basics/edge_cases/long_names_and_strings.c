int printf(const char *format, ...);

static int this_name_is_quite_long_but_still_within_what_a_compiler_has_to_keep_apart_1 = 1;
static int this_name_is_quite_long_but_still_within_what_a_compiler_has_to_keep_apart_2 = 2;
int _ = 3, __a1B2 = 4, Return = 5, ifs = 6;

#define TEN "0123456789"
#define HUNDRED TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN
#define THOUSAND HUNDRED HUNDRED HUNDRED HUNDRED HUNDRED HUNDRED HUNDRED HUNDRED HUNDRED HUNDRED

int main(void) {
    const char *text = THOUSAND THOUSAND THOUSAND THOUSAND;
    int n = 0;
    while (text[n])
        n++;
    printf("%d %c\n", n, text[3999]);
    printf("%d %d\n", this_name_is_quite_long_but_still_within_what_a_compiler_has_to_keep_apart_1,
           this_name_is_quite_long_but_still_within_what_a_compiler_has_to_keep_apart_2);
    printf("%d\n", _ + __a1B2 * 10 + Return * 100 + ifs * 1000);
    printf("%d\n", (int)sizeof(HUNDRED));
    return 0;
}
