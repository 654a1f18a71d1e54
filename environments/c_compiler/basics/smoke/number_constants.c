int main(void) { return 0x1f + 017 + 'A' + 1; }
