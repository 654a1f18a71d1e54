int cells[2 - 3];

int main(void) { return 0; }
