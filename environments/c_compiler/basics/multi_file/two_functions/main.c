/* No headers at all: what the other file defines is declared here. */
int add(int a, int b);
int square(int x);

int main(void) { return add(square(5), 4); }
