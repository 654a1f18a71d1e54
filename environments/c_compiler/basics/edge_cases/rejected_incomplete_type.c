struct unknown;

int main(void) {
    struct unknown u;
    return sizeof u > 0;
}
