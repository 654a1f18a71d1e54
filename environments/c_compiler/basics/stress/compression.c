#include <stdio.h>
#include <string.h>

#define LENGTH 20000
#define WINDOW 255

static unsigned char text[LENGTH], packed[2 * LENGTH], back[LENGTH];

static void make_text(void) {
    static const char *const words[] = {"the ", "cat ", "and ", "dog ", "ran ", "over ", "hills, "};
    unsigned int state = 7;
    for (int at = 0; at < LENGTH;) {
        state = state * 69069u + 1u;
        for (const char *w = words[(state >> 16) % 7]; *w && at < LENGTH; w++)
            text[at++] = (unsigned char)*w;
    }
}

/* Pairs: 0 and a byte, or a length and how far back. */
static int pack(const unsigned char *from, int n, unsigned char *to) {
    int used = 0;
    for (int at = 0; at < n;) {
        int best = 0, distance = 0;
        for (int d = 1; d <= WINDOW && d <= at; d++) {
            int length = 0;
            while (length < 255 && at + length < n && from[at + length] == from[at + length - d])
                length++;
            if (length > best)
                best = length, distance = d;
        }
        to[used++] = (unsigned char)(best > 2 ? best : 0);
        to[used++] = (unsigned char)(best > 2 ? distance : from[at]);
        at += best > 2 ? best : 1;
    }
    return used;
}

static int unpack(const unsigned char *from, int n, unsigned char *to) {
    int at = 0;
    for (int i = 0; i < n; i += 2) {
        if (from[i] == 0)
            to[at++] = from[i + 1];
        for (int k = from[i]; k > 0; k--, at++)
            to[at] = to[at - from[i + 1]];
    }
    return at;
}

int main(void) {
    make_text();
    int used = pack(text, LENGTH, packed);
    int n = unpack(packed, used, back);
    unsigned int check = 1;
    for (int i = 0; i < used; i++)
        check = check * 33u ^ packed[i];
    printf("%d %d %d %u\n", used, n, memcmp(text, back, LENGTH), check);
    printf("%.30s\n", (const char *)text);
    return 0;
}
