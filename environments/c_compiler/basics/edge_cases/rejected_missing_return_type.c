answer(void) { return 0; }

int main(void) { return answer(); }
