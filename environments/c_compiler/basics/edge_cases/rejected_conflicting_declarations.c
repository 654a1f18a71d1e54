int value(int);
double value(int);

int main(void) { return 0; }
