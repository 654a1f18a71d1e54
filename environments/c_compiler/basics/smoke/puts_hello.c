int puts(const char *text);

int main(void) {
    puts("hello, world");
    return 0;
}
