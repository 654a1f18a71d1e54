static int value = 2;

static int helper(void) {
    static int calls;
    return value + calls++;
}

int one(void) { return helper(); }
