#include "colours.h"

unsigned long value_of(enum colour c) {
    switch (c) {
#define COLOUR(name, r, g, b) \
    case name:                \
        return (unsigned long)(r) << 16 | (unsigned long)(g) << 8 | (b);
#include "colours.inc.h"
#undef COLOUR
    default:
        return ~0ul;
    }
}
