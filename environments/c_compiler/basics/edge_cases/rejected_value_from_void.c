static void nothing(void) {}

int main(void) {
    int a = nothing();
    return a;
}
