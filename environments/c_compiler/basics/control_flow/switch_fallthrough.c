int printf(const char *format, ...);

static int days(int month, int leap) {
    switch (month) {
    case 4:
    case 6:
    case 9:
    case 11:
        return 30;
    case 2:
        if (leap)
            return 29;
        return 28;
    default:
        return 31;
    }
}

static int count_down(int from) {
    int value = 0;
    switch (from) {
    default:
        value += 1000;
        break;
    case 3:
        value += 300; /* falls through */
    case 2:
        value += 20; /* falls through */
    case 1:
        value += 1;
        break;
    case 0:;
    }
    return value;
}

int main(void) {
    int sum = 0;
    for (int m = 1; m <= 12; m++)
        sum += days(m, m % 2 == 0);
    printf("%d\n", sum);
    for (int i = -1; i < 5; i++)
        printf("%d ", count_down(i));
    printf("end\n");
    switch (3)
        case 3:
            printf("no braces\n");
    switch (sum) {
        case 1:
            printf("unreachable\n");
    }
    return 0;
}
