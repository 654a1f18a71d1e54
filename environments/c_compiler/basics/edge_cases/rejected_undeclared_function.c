int main(void) { return never_declared(3); }
