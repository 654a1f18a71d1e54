/* Arguments and results of narrow types are converted to these types. */
int printf(const char *format, ...);

static signed char as_signed_char(int n) { return (signed char)n; }
static unsigned char as_unsigned_char(int n) { return (unsigned char)n; }
static short as_short(long n) { return (short)n; }
static unsigned short as_unsigned_short(long n) { return (unsigned short)n; }
static _Bool as_bool(double d) { return d; }
static float as_float(double d) { return (float)d; }
static int as_int(double d) { return (int)d; }
static long as_long(int n) { return n; }
static unsigned long as_unsigned_long(int n) { return (unsigned long)n; }
static double as_double(int n) { return n; }

int main(void) {
    printf("%d %d\n", as_signed_char(511), as_unsigned_char(-2));
    printf("%d %d\n", as_short(98304), as_unsigned_short(-1));
    printf("%d %d\n", as_bool(0.5), as_bool(0));
    printf("%d %d %d\n", as_float(0.1) == 0.1f, as_int(-3.99), as_int(as_float(2.75)));
    printf("%ld %lu %.2f\n", as_long(-4), as_unsigned_long(-4), as_double(-4) / 8);
    printf("%d\n", as_signed_char(200) < as_unsigned_char(200));
    return 0;
}
