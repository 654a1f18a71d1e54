int main(void) {
    int a = 3;
    int result = 0;
    if (a > 2)
        result = result + 1;
    else
        result = result + 100;
    if (a == 4) {
        result = 90;
    } else if (a != 3) {
        result = 80;
    } else {
        result = result + 20;
    }
    return result;
}
