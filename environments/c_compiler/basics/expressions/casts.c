int printf(const char *format, ...);

int main(void) {
    double d = -3.99;
    unsigned char bytes[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    long big = 0x1234567890abcdefL;
    printf("%d %d %d\n", (int)d, (int)2.999, (int)-0.5);
    printf("%d %u\n", (signed char)0x80, (unsigned int)-1);
    printf("%x %x %x\n", (unsigned int)big, (unsigned short)big, (unsigned char)big);
    printf("%lu %ld\n", (unsigned long)(int)-1, (long)(unsigned int)-1);
    printf("%.1f %.1f\n", (double)7 / 2, (double)(7 / 2));
    printf("%.1f %.1f\n", (float)3u, (double)-2L);
    printf("%d %d\n", (_Bool)3, (int)(char)65);
    printf("%lu\n", (unsigned long)4e18);
    printf("%lu\n", (unsigned long)1.2e19);
    printf("%.1f\n", (double)18446744073709549568ul);
    printf("%d\n", *(unsigned char *)(void *)(bytes + 3));
    (void)big;
    unsigned char *p = (unsigned char *)&bytes[2];
    printf("%d %d\n", p[1], (int)((char *)p - (char *)bytes));
    printf("%d\n", (int)(long)(void *)(long)1234);
    return 0;
}
