int printf(const char *format, ...);

static void copy(char *to, const char *from, int count) {
    int rounds = (count + 7) / 8;
    if (count <= 0)
        return;
    switch (count % 8) {
    case 0:
        do {
            *to++ = *from++; /* falls through */
        case 7:
            *to++ = *from++; /* falls through */
        case 6:
            *to++ = *from++; /* falls through */
        case 5:
            *to++ = *from++; /* falls through */
        case 4:
            *to++ = *from++; /* falls through */
        case 3:
            *to++ = *from++; /* falls through */
        case 2:
            *to++ = *from++; /* falls through */
        case 1:
            *to++ = *from++;
        } while (--rounds > 0);
    }
}

int main(void) {
    const char *alphabet = "abcdefghijklmnopqrstuvwxyz";
    for (int count = 0; count <= 26; count += 3) {
        char buffer[32] = "..............................";
        copy(buffer, alphabet, count);
        printf("%s\n", buffer);
    }
    return 0;
}
