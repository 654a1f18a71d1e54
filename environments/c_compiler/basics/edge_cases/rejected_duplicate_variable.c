int main(void) {
    int a = 1;
    int a = 0;
    return a;
}
