int twice(int a) { return a * 2; }
int twice(int b) { return b + b; }

int main(void) { return twice(0); }
