int main(void) {
    switch (3) {
    case 1 + 1:
        return 1;
    case 2:
        return 2;
    }
    return 0;
}
