#ifndef TEXT_H
#define TEXT_H

#include "detail/limits.h"

int text_repeat(char *to, const char *what, int times);
int text_count(const char *text, char c);

#endif
