static int value = 3;

static int helper(void) {
    static int calls = 4;
    return value * calls--;
}

int two(void) { return helper(); }
