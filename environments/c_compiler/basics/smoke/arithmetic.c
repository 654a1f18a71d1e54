int main(void) { return 2 + 3 * 4 - (10 - 4) / 2 + 29 % 5 + 22; }
