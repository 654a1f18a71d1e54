enum colour {
#define COLOUR(name, red, green, blue) name,
#include "colours.inc.h"
#undef COLOUR
    COLOURS
};

unsigned long value_of(enum colour c);
