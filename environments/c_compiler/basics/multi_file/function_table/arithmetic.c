#include "operations.h"

int difference(int a, int b) { return a - b; }

int power(int a, int b) {
    int result = 1;
    while (b-- > 0)
        result *= a;
    return result;
}
