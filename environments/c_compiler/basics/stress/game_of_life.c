int printf(const char *format, ...);

enum { SIDE = 64, GENERATIONS = 100 };

typedef unsigned char world[SIDE][SIDE];

static int neighbours(world w, int r, int c) {
    int n = 0;
    for (int dr = -1; dr <= 1; dr++)
        for (int dc = -1; dc <= 1; dc++)
            if (dr || dc)
                n += w[(r + dr + SIDE) % SIDE][(c + dc + SIDE) % SIDE];
    return n;
}

static int advance(world from, world to) {
    int alive = 0;
    for (int r = 0; r < SIDE; r++)
        for (int c = 0; c < SIDE; c++) {
            int n = neighbours(from, r, c);
            to[r][c] = n == 3 || (n == 2 && from[r][c]);
            alive += to[r][c];
        }
    return alive;
}

int main(void) {
    static world worlds[2];
    static const char *const start[] = {".##", "##.", ".#."};
    int alive = 0;
    for (int r = 0; r < 3; r++)
        for (int c = 0; c < 3; c++)
            worlds[0][30 + r][30 + c] = start[r][c] == '#';
    for (int g = 0; g < GENERATIONS; g++) {
        alive = advance(worlds[g & 1], worlds[!(g & 1)]);
        if (g % 20 == 19)
            printf("%d: %d\n", g + 1, alive);
    }
    for (int r = 24; r < 30; r++) {
        for (int c = 16; c < 48; c++)
            printf("%c", worlds[GENERATIONS & 1][r][c] ? '#' : '.');
        printf("\n");
    }
    return alive % 256;
}
