/* Values that are stored into narrower objects lose their upper bits. */
int printf(const char *format, ...);

int main(void) {
    unsigned char uc = (unsigned char)300;
    signed char sc = (signed char)200;
    unsigned short us = (unsigned short)-1;
    short s = (short)70000;
    unsigned int ui = (unsigned int)0x123456789abcdefULL;
    int i = (int)0xfffffff0u;
    unsigned long wide = (unsigned long)-1;
    long from_int = -7;
    unsigned long from_negative = (unsigned long)-7;
    unsigned long from_unsigned = 4294967289u;
    printf("%d %d %d %d %u %d\n", uc, sc, us, s, ui, i);
    printf("%lu %ld %lu %lu\n", wide, from_int, from_negative, from_unsigned);
    uc = 250;
    uc += 10;
    us = 65535;
    us++;
    sc = 127;
    sc = (signed char)(sc + 1);
    printf("%d %d %d\n", uc, us, sc);
    return 0;
}
