#include <stdio.h>
#include <string.h>

enum code { PUSH, ADD, SUB, MUL, MOD, DUP, SWAP, OVER, LOAD, STORE, LESS, JUMP, JUMP_IF_ZERO, CALL, BACK, PRINT, HALT };

struct instruction {
    enum code code;
    long operand;
};

struct machine {
    long stack[256], memory[16];
    int calls[256];
    int top, depth, at;
    long executed;
};

static long pop(struct machine *m) { return m->stack[--m->top]; }
static void push(struct machine *m, long v) { m->stack[m->top++] = v; }

static void run(struct machine *m, const struct instruction *program) {
    for (;;) {
        struct instruction now = program[m->at++];
        long a, b;
        m->executed++;
        switch (now.code) {
        case PUSH: push(m, now.operand); break;
        case ADD: b = pop(m), a = pop(m), push(m, a + b); break;
        case SUB: b = pop(m), a = pop(m), push(m, a - b); break;
        case MUL: b = pop(m), a = pop(m), push(m, a * b); break;
        case MOD: b = pop(m), a = pop(m), push(m, a % b); break;
        case DUP: a = pop(m), push(m, a), push(m, a); break;
        case SWAP: b = pop(m), a = pop(m), push(m, b), push(m, a); break;
        case OVER: push(m, m->stack[m->top - 2]); break;
        case LOAD: push(m, m->memory[now.operand]); break;
        case STORE: m->memory[now.operand] = pop(m); break;
        case LESS: b = pop(m), a = pop(m), push(m, a < b); break;
        case JUMP: m->at = (int)now.operand; break;
        case JUMP_IF_ZERO: if (pop(m) == 0) m->at = (int)now.operand; break;
        case CALL: m->calls[m->depth++] = m->at; m->at = (int)now.operand; break;
        case BACK: m->at = m->calls[--m->depth]; break;
        case PRINT: printf("%ld\n", pop(m)); break;
        case HALT: return;
        }
    }
}

/* Sum of i * i % 1000 below a bound, then the 20th Fibonacci number by recursion. */
static const struct instruction program[] = {
    {PUSH, 0}, {STORE, 0}, {PUSH, 0}, {STORE, 1},
    {LOAD, 0}, {PUSH, 100000}, {LESS, 0}, {JUMP_IF_ZERO, 20},
    {LOAD, 0}, {DUP, 0}, {MUL, 0}, {PUSH, 1000}, {MOD, 0},
    {LOAD, 1}, {ADD, 0}, {STORE, 1}, {LOAD, 0}, {PUSH, 1}, {ADD, 0}, {JUMP, 38},
    {LOAD, 1}, {PRINT, 0}, {PUSH, 20}, {CALL, 26}, {PRINT, 0}, {HALT, 0},
    {DUP, 0}, {PUSH, 2}, {LESS, 0}, {JUMP_IF_ZERO, 31}, {BACK, 0},
    {DUP, 0}, {PUSH, 1}, {SUB, 0}, {CALL, 26}, {SWAP, 0}, {PUSH, 2}, {JUMP, 40},
    {STORE, 0}, {JUMP, 4},
    {SUB, 0}, {CALL, 26}, {ADD, 0}, {BACK, 0},
};

int main(void) {
    static struct machine m;
    memset(&m, 0, sizeof m);
    run(&m, program);
    printf("%ld %d\n", m.executed, m.top);
    return 0;
}
