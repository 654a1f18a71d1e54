int main(void) {
    int width = 6;
    int height;
    height = width - 1;
    return width * height;
}
