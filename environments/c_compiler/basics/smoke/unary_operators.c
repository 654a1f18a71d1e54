int main(void) { return -(-5) + !0 + !7 + (~0 + 4); }
