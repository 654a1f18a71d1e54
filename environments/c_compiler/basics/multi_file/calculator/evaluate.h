#ifndef EVALUATE_H
#define EVALUATE_H

struct result {
    long value;
    const char *problem;
};

struct result evaluate(const char *line);

#endif
