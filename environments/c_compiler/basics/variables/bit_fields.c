int printf(const char *format, ...);

struct flags {
    unsigned int ready : 1;
    unsigned int mode : 3;
    signed int delta : 4;
    unsigned int : 2;
    unsigned int level : 6;
    unsigned int : 0;
    unsigned int next : 30;
};

struct date {
    unsigned int day : 5, month : 4, year : 12;
    _Bool holiday : 1;
};

int main(void) {
    struct flags f = {1, 5, -3, 33, 1u << 29};
    printf("%u %u %d %u %u\n", f.ready, f.mode, f.delta, f.level, f.next);
    f.mode += 6;
    f.delta = 7;
    f.level = 63;
    f.ready = 0;
    printf("%u %u %d %u %u\n", f.ready, f.mode, f.delta, f.level, f.next);
    f.level++;
    f.delta -= 15;
    f.next = f.next / 2 - 1;
    printf("%u %u %d %u %u\n", f.ready, f.mode, f.delta, f.level, f.next);
    struct date d = {.year = 2024, .month = 2, .day = 29};
    d.holiday = d.day == 29;
    struct date e = d;
    e.day = e.day - 30 < 0 ? 1 : 2;
    printf("%u-%u-%u %d %u\n", d.year, d.month, d.day, d.holiday, e.day);
    printf("%d %d\n", (int)sizeof(struct flags), (int)sizeof(struct date));
    return 0;
}
