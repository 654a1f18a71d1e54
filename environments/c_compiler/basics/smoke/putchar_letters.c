int putchar(int c);

int main(void) {
    putchar('H');
    putchar(105);
    putchar('!');
    putchar('\n');
    return 0;
}
