#ifndef STACK_H
#define STACK_H

struct stack;

struct stack *stack_new(void);
void stack_push(struct stack *s, long value);
long stack_pop(struct stack *s);
int stack_size(const struct stack *s);
void stack_each(const struct stack *s, void (*visit)(long value, void *context), void *context);
void stack_free(struct stack *s);

#endif
