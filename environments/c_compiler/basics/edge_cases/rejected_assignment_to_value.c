int main(void) {
    int a = 1, b = 2;
    a + b = 0;
    return 0;
}
