int value(void) { return 0; }
int other(void);

int main(void) { return value() + other(); }
