#include <stdio.h>
#include <string.h>

#define ROWS 61
#define COLUMNS 121

static char maze[ROWS][COLUMNS + 1];
static int distance[ROWS][COLUMNS];
static unsigned int state = 20240229u;

static const struct {
    int row, column;
} ways[4] = {{-1, 0}, {0, 1}, {1, 0}, {0, -1}};

static unsigned int chance(unsigned int n) {
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state % n;
}

static void carve(int r, int c) {
    int order[4] = {0, 1, 2, 3};
    maze[r][c] = ' ';
    for (unsigned int i = 3; i > 0; i--) {
        unsigned int j = chance(i + 1);
        int t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
    for (int i = 0; i < 4; i++) {
        int dr = ways[order[i]].row, dc = ways[order[i]].column;
        int nr = r + 2 * dr, nc = c + 2 * dc;
        if (nr < 0 || nr >= ROWS || nc < 0 || nc >= COLUMNS || maze[nr][nc] != '#')
            continue;
        maze[r + dr][c + dc] = ' ';
        carve(nr, nc);
    }
}

static int solve(void) {
    static int queue[ROWS * COLUMNS];
    int head = 0, tail = 0, most = 0;
    memset(distance, -1, sizeof distance);
    queue[tail++] = 1 * COLUMNS + 1;
    distance[1][1] = 0;
    while (head < tail) {
        int r = queue[head] / COLUMNS, c = queue[head] % COLUMNS;
        head++;
        if (distance[r][c] > most)
            most = distance[r][c];
        for (int i = 0; i < 4; i++) {
            int nr = r + ways[i].row, nc = c + ways[i].column;
            if (maze[nr][nc] == '#' || distance[nr][nc] >= 0)
                continue;
            distance[nr][nc] = distance[r][c] + 1;
            queue[tail++] = nr * COLUMNS + nc;
        }
    }
    printf("%d open, %d to the corner, %d at most\n", tail, distance[ROWS - 2][COLUMNS - 2], most);
    return distance[ROWS - 2][COLUMNS - 2];
}

int main(void) {
    for (int r = 0; r < ROWS; r++)
        memset(maze[r], '#', COLUMNS);
    carve(1, 1);
    solve();
    for (int r = 0; r < 5; r++)
        printf("|%.40s|\n", maze[r]);
    return 0;
}
