#define WANTED 2

#if WANTED != 1
#error only 1 is supported
#endif

int main(void) { return 0; }
