int main(void) { return 256 * 3 + 7; }
