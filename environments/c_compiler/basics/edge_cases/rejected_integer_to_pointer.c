int main(void) {
    int a = 5;
    int *p = a;
    return p == 0;
}
