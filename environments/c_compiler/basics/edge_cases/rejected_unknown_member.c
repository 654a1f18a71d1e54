struct point {
    int x, y;
};

int main(void) {
    struct point p = {0, 0};
    return p.z;
}
