int present(void) { return 0; }
