#pragma once

typedef int binary(int a, int b);

struct operation {
    const char *name;
    binary *run;
};

extern const struct operation operations[];
extern const int operation_count;

const struct operation *operation_named(const char *name);
binary difference, power;
