#include "evaluate.h"
#include "tokens.h"

#include <stddef.h>

struct reader {
    const char *at;
    struct token now;
    const char *problem;
};

static long sum(struct reader *r);

static void move_on(struct reader *r) { r->now = next_token(&r->at); }

static int is(const struct reader *r, char symbol) {
    return r->now.kind == SYMBOL && r->now.value == symbol;
}

static long failed(struct reader *r, const char *problem) {
    if (r->problem == NULL)
        r->problem = problem;
    return 0;
}

static long atom(struct reader *r) {
    long value = r->now.value;
    if (r->now.kind == NUMBER) {
        move_on(r);
        return value;
    }
    if (is(r, '-')) {
        move_on(r);
        return -atom(r);
    }
    if (!is(r, '('))
        return failed(r, r->now.kind == END ? "ends too early" : "no number");
    move_on(r);
    value = sum(r);
    if (!is(r, ')'))
        return failed(r, "no closing parenthesis");
    move_on(r);
    return value;
}

static long product(struct reader *r) {
    long value = atom(r);
    while (is(r, '*') || is(r, '/')) {
        int divide = is(r, '/');
        move_on(r);
        long other = atom(r);
        if (divide && other == 0)
            return failed(r, "division by zero");
        value = divide ? value / other : value * other;
    }
    return value;
}

static long sum(struct reader *r) {
    long value = product(r);
    while (is(r, '+') || is(r, '-')) {
        long sign = is(r, '-') ? -1 : 1;
        move_on(r);
        value += sign * product(r);
    }
    return value;
}

struct result evaluate(const char *line) {
    struct reader r = {line, {END, 0}, NULL};
    struct result result;
    move_on(&r);
    result.value = sum(&r);
    if (r.now.kind != END && r.problem == NULL)
        r.problem = "something is left over";
    result.problem = r.problem;
    return result;
}
