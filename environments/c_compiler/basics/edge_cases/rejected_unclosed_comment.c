int main(void) { return 0; }
/* This comment has no end.
