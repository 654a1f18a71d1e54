int value(void) { return 1; }
int other(void) { return 0; }
