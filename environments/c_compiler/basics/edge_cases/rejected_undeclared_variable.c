int main(void) {
    int total = 1;
    {
        int inner = 2;
        total += inner;
    }
    return total + inner;
}
