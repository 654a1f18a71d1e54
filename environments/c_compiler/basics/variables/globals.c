int printf(const char *format, ...);

int zero;
int answer = 42;
static long table[4] = {1, 2};
char word[] = "globe";
char padded[8] = "ab";
const char *message = "message";
int *to_answer = &answer;
long *to_table = &table[1];
double half = 1.0 / 2;
static int sum_of_constants = 3 * 4 + (1 << 4) - sizeof(int);
struct point {
    int x, y;
} origin, corner = {7, 9};
struct point *corners[] = {&corner, &origin};
int tentative;
int tentative;

static void change(void) {
    zero = zero + 5;
    *to_answer += 1;
    to_table[1] = 33;
}

int main(void) {
    change();
    printf("%d %d %ld %ld %ld %ld\n", zero, answer, table[0], table[1], table[2], table[3]);
    printf("%s %d %s %d %s\n", word, (int)sizeof word, padded, padded[7], message);
    printf("%.2f %d %d\n", half, sum_of_constants, tentative);
    printf("%d %d %d\n", corners[0]->x, corners[0]->y, corners[1]->y);
    printf("%d\n", (int)(sizeof corners / sizeof *corners));
    return 0;
}
