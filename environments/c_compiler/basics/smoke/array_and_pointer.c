int main(void) {
    int numbers[3];
    int *p = numbers;
    numbers[0] = 10;
    numbers[1] = 20;
    *(p + 2) = 30;
    return p[0] + *(numbers + 1) + numbers[2];
}
