#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    char *key;
    long value;
    struct entry *next;
};

struct table {
    struct entry **buckets;
    unsigned long size, used;
};

static unsigned long hash(const char *key) {
    unsigned long h = 14695981039346656037ul;
    while (*key)
        h = (h ^ (unsigned char)*key++) * 1099511628211ul;
    return h;
}

static void grow(struct table *t) {
    unsigned long size = t->size ? t->size * 2 : 8;
    struct entry **buckets = calloc(size, sizeof *buckets);
    if (!buckets)
        exit(1);
    for (unsigned long i = 0; i < t->size; i++)
        for (struct entry *e = t->buckets[i], *next; e; e = next) {
            next = e->next;
            e->next = buckets[hash(e->key) % size];
            buckets[hash(e->key) % size] = e;
        }
    free(t->buckets);
    t->buckets = buckets;
    t->size = size;
}

static long *at(struct table *t, const char *key) {
    if (t->used >= t->size)
        grow(t);
    struct entry **place = &t->buckets[hash(key) % t->size];
    for (; *place; place = &(*place)->next)
        if (strcmp((*place)->key, key) == 0)
            return &(*place)->value;
    struct entry *e = malloc(sizeof *e);
    if (!e || !(e->key = malloc(strlen(key) + 1)))
        exit(1);
    strcpy(e->key, key);
    e->value = 0;
    e->next = NULL;
    *place = e;
    t->used++;
    return &e->value;
}

static int drop(struct table *t, const char *key) {
    struct entry **place = &t->buckets[hash(key) % t->size];
    while (*place && strcmp((*place)->key, key))
        place = &(*place)->next;
    if (!*place)
        return 0;
    struct entry *gone = *place;
    *place = gone->next;
    free(gone->key);
    free(gone);
    t->used--;
    return 1;
}

int main(void) {
    struct table t = {0};
    char key[32];
    for (int i = 0; i < 30000; i++) {
        snprintf(key, sizeof key, "key-%d", i * 7 % 9973);
        *at(&t, key) += i;
    }
    printf("%lu %lu\n", t.used, t.size);
    printf("%ld %ld %ld\n", *at(&t, "key-0"), *at(&t, "key-1"), *at(&t, "key-9972"));
    int dropped = 0;
    for (int i = 0; i < 20000; i += 3) {
        snprintf(key, sizeof key, "key-%d", i);
        dropped += drop(&t, key);
    }
    long sum = 0;
    for (unsigned long i = 0; i < t.size; i++)
        for (struct entry *e = t.buckets[i], *next; e; e = next) {
            next = e->next;
            sum += e->value;
            free(e->key);
            free(e);
        }
    printf("%d %lu %ld\n", dropped, t.used, sum);
    free(t.buckets);
    return 0;
}
