int present(void);
int absent(void);

int main(void) { return present() + absent(); }
