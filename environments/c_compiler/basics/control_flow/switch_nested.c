int printf(const char *format, ...);

static const char *classify(int kind, int detail) {
    switch (kind) {
    case 1:
        switch (detail) {
        case 1:
            return "1/1";
        case 2:
            break;
        default:
            return "1/other";
        }
        return "1/broken out";
    case 2:
        for (int i = 0; i < 5; i++) {
            switch (i * detail) {
            case 6:
                return "2/six";
            case 8:
                continue;
            default:
                break;
            }
            if (i == 4)
                return "2/end";
        }
        return "2/none";
    case 3: {
        int local = detail * 2;
        if (local > 4) {
        case 4:
            return "3 or 4";
        }
        break;
    }
    }
    return "nothing";
}

int main(void) {
    printf("%s, %s, %s\n", classify(1, 1), classify(1, 2), classify(1, 3));
    printf("%s, %s, %s\n", classify(2, 2), classify(2, 5), classify(2, 8));
    printf("%s, %s, %s, %s\n", classify(3, 1), classify(3, 3), classify(4, 0), classify(5, 0));
    return 0;
}
