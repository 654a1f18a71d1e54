#ifndef MATHS_H
#define MATHS_H

enum { COUNT = 3 };

inline int triple(int x) { return 3 * x; }

static inline int lesser(int a, int b) { return a < b ? a : b; }

int counted(void);

#endif
