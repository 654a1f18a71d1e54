/* A comment
   over two lines, with // and "quotes" in it. */
int main(void) {
    int a = 1; // to the end of the line /* not opened
    int /* between words */ b = 2;
    return a /* + 10 */ + b;
}
