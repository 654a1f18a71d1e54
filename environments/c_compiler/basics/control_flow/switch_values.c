int printf(const char *format, ...);

enum { FIRST = 10, SECOND };

static int sparse(long long value) {
    switch (value) {
    case -9000000000LL:
        return 1;
    case -1:
        return 2;
    case 0:
        return 3;
    case FIRST:
        return 4;
    case SECOND:
        return 5;
    case 'A':
        return 6;
    case 1 << 20:
        return 7;
    case 5000000000LL:
        return 8;
    case (int)3.9:
        return 9;
    }
    return 0;
}

static int narrow(unsigned char c) {
    switch (c) {
    case 0:
        return 100;
    case 255:
        return 200;
    case 256 - 1 - 1:
        return 300;
    default:
        return -1;
    }
}

int main(void) {
    long long values[] = {-9000000000LL, -1, 0, 10, 11, 65, 1048576, 5000000000LL, 3, 705032704};
    for (int i = 0; i < 10; i++)
        printf("%d ", sparse(values[i]));
    printf("end\n%d %d %d %d\n", narrow(0), narrow(255), narrow(254), narrow(7));
    return 0;
}
