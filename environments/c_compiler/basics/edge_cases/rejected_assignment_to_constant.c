int main(void) {
    const int fixed = 1;
    fixed = 0;
    return fixed;
}
