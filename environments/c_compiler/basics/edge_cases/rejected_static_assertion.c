_Static_assert(sizeof(char) == 2, "never true");

int main(void) { return 0; }
