#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct person {
    const char *name;
    int age;
};

static int comparisons;

static int by_age(const void *a, const void *b) {
    const struct person *x = a, *y = b;
    comparisons++;
    return (x->age > y->age) - (x->age < y->age);
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct person *)a)->name, ((const struct person *)b)->name);
}

static int find_int(const void *key, const void *element) {
    return *(const int *)key - *(const int *)element;
}

int main(void) {
    struct person people[] = {{"Mia", 31}, {"Abe", 45}, {"Zoe", 7}, {"Kim", 22}};
    int sorted[] = {2, 3, 5, 7, 11, 13};
    int key = 11, missing = 4;
    qsort(people, 4, sizeof people[0], by_age);
    for (int i = 0; i < 4; i++)
        printf("%s ", people[i].name);
    qsort(people, 4, sizeof people[0], by_name);
    for (int i = 0; i < 4; i++)
        printf("%s%c", people[i].name, i == 3 ? '\n' : ' ');
    int *found = bsearch(&key, sorted, 6, sizeof(int), find_int);
    printf("%d %d\n", (int)(found - sorted),
           bsearch(&missing, sorted, 6, sizeof(int), find_int) == NULL);
    return comparisons > 0;
}
