#include <stdio.h>

#define TEXT(x) #x
#define EXPANDED(x) TEXT(x)
#define JOIN(a, b) a##b
#define JOINED(a, b) JOIN(a, b)
#define VERSION 12
#define FIELD(type, name) type field_##name; const char *name_of_##name
#define ENTRY(name) {name##_code, #name}

enum { open_code = 3, close_code = 4 };

struct record {
    FIELD(int, size);
};

static const struct {
    int code;
    const char *name;
} entries[] = {ENTRY(open), ENTRY(close)};

int main(void) {
    int JOINED(value_, VERSION) = 5;
    struct record r = {.field_size = 6, .name_of_size = TEXT(size)};
    printf("%s|%s|%s\n", TEXT(VERSION), EXPANDED(VERSION), TEXT(a  +   b));
    printf("%s|%s\n", TEXT("quoted\n"), TEXT('\'' "\\"));
    printf("%d %d\n", value_12, JOIN(1, 2) + JOIN(0x, ff));
    printf("%d %s\n", r.field_size, r.name_of_size);
    printf("%d %s %d %s\n", entries[0].code, entries[0].name, entries[1].code, entries[1].name);
    int i = 1;
    i JOIN(+, =) 4;
    printf("%d [%s] [%s]\n", i, TEXT(), EXPANDED(JOIN(a, JOIN)));
    printf("%s\n", EXPANDED((VERSION, [TEXT(x)])));
    return 0;
}
