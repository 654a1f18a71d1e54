int main(void) {
    double d = 1;
    int *p = &d;
    return p == 0;
}
