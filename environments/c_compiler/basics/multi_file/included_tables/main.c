/* One list, included again and again with another meaning of its entries. */
#include "colours.h"

#include <stdio.h>

static const char *const names[] = {
#define COLOUR(name, red, green, blue) #name,
#include "colours.inc.h"
#undef COLOUR
};

int main(void) {
    for (int c = 0; c < COLOURS; c++)
        printf("%s %06lx\n", names[c], value_of((enum colour)c));
    printf("%d %d\n", COLOURS, green);
    return 0;
}
