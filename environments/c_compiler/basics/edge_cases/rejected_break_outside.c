int main(void) {
    if (1)
        break;
    return 0;
}
