#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct node {
    char kind;
    long value;
    struct node *left, *right;
};

static const char *at;
static long variables[26];

static struct node *sum(void);

static struct node *make(char kind, long value, struct node *left, struct node *right) {
    struct node *n = malloc(sizeof *n);
    if (!n)
        exit(1);
    *n = (struct node){kind, value, left, right};
    return n;
}

static char peek(void) {
    while (*at == ' ')
        at++;
    return *at;
}

static struct node *atom(void) {
    char c = peek();
    if (isdigit((unsigned char)c)) {
        char *end;
        long value = strtol(at, &end, 10);
        at = end;
        return make('n', value, NULL, NULL);
    }
    at++;
    if (c == '(') {
        struct node *inner = sum();
        if (peek() == ')')
            at++;
        return inner;
    }
    if (c == '-')
        return make('~', 0, atom(), NULL);
    return make('v', c - 'a', NULL, NULL);
}

static struct node *product(void) {
    struct node *n = atom();
    while (peek() && strchr("*/%", peek())) {
        char kind = *at++;
        n = make(kind, 0, n, atom());
    }
    return n;
}

static struct node *sum(void) {
    struct node *n = product();
    while (peek() == '+' || peek() == '-') {
        char kind = *at++;
        n = make(kind, 0, n, product());
    }
    return n;
}

static long value_of(const struct node *n) {
    switch (n->kind) {
    case 'n': return n->value;
    case 'v': return variables[n->value];
    case '~': return -value_of(n->left);
    case '+': return value_of(n->left) + value_of(n->right);
    case '-': return value_of(n->left) - value_of(n->right);
    case '*': return value_of(n->left) * value_of(n->right);
    case '/': return value_of(n->left) / value_of(n->right);
    default: return value_of(n->left) % value_of(n->right);
    }
}

static int drop(struct node *n) {
    if (!n)
        return 0;
    int nodes = 1 + drop(n->left) + drop(n->right);
    free(n);
    return nodes;
}

int main(void) {
    const char *texts[] = {"1 + 2 * 3", "(1 + 2) * 3", "-(4 - 10) / 2 % 2", "100 / 7 / 2 - -3",
                           "a * a - b", "((((7))))", "2 * (a + (b - 1) * (b + 1))"};
    variables[0] = 12;
    variables[1] = -5;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        at = texts[i];
        struct node *tree = sum();
        long value = value_of(tree);
        printf("%s = %ld (%d)\n", texts[i], value, drop(tree));
    }
    at = "a * (b + 3) - a % 5 + 1000 / (b * b + 1)";
    struct node *tree = sum();
    long total = 0;
    for (variables[0] = -200; variables[0] < 200; variables[0]++)
        for (variables[1] = -200; variables[1] < 200; variables[1]++)
            total += value_of(tree);
    printf("%ld %d\n", total, drop(tree));
    return 0;
}
