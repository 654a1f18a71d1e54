#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N 100000

static int numbers[N], a[N], b[N], spare[N];
static unsigned int seed = 12345;

static int next(void) {
    seed = seed * 1103515245u + 12345u;
    return (int)(seed >> 8 & 0xfffff) - 0x80000;
}

static void quick(int *v, int left, int right) {
    while (left < right) {
        int i = left, j = right, pivot = v[left + (right - left) / 2];
        while (i <= j) {
            while (v[i] < pivot)
                i++;
            while (v[j] > pivot)
                j--;
            if (i <= j) {
                int t = v[i];
                v[i++] = v[j];
                v[j--] = t;
            }
        }
        quick(v, left, j);
        left = i;
    }
}

static void merge(int *v, int n) {
    if (n < 2)
        return;
    int half = n / 2, i = 0, j = half, k = 0;
    merge(v, half);
    merge(v + half, n - half);
    while (i < half && j < n)
        spare[k++] = v[j] < v[i] ? v[j++] : v[i++];
    while (i < half)
        spare[k++] = v[i++];
    while (j < n)
        spare[k++] = v[j++];
    memcpy(v, spare, (size_t)n * sizeof *v);
}

static void sift(int *v, int at, int n) {
    for (int child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && v[child] < v[child + 1])
            child++;
        if (v[at] >= v[child])
            return;
        int t = v[at];
        v[at] = v[child];
        v[child] = t;
    }
}

static void heap(int *v, int n) {
    for (int i = n / 2; i-- > 0;)
        sift(v, i, n);
    while (--n > 0) {
        int t = v[0];
        v[0] = v[n];
        v[n] = t;
        sift(v, 0, n);
    }
}

static int compare(const void *x, const void *y) {
    int p = *(const int *)x, q = *(const int *)y;
    return (p > q) - (p < q);
}

int main(void) {
    for (int i = 0; i < N; i++)
        numbers[i] = next();
    memcpy(a, numbers, sizeof a);
    memcpy(b, numbers, sizeof b);
    quick(a, 0, N - 1);
    merge(b, N);
    printf("%d\n", memcmp(a, b, sizeof a) == 0);
    memcpy(b, numbers, sizeof b);
    heap(b, N);
    printf("%d\n", memcmp(a, b, sizeof a) == 0);
    qsort(numbers, N, sizeof numbers[0], compare);
    printf("%d\n", memcmp(a, numbers, sizeof a) == 0);
    int rising = 1;
    for (int i = 1; i < N; i++)
        rising &= a[i - 1] <= a[i];
    printf("%d %d %d %d\n", rising, a[0], a[N / 2], a[N - 1]);
    return 0;
}
