#define SCALE 4
