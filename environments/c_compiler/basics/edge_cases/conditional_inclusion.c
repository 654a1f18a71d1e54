#include <stdio.h>

#define FEATURE 3
#define ZERO
#define TWICE(x) ((x) * 2)

#if FEATURE > 2 && defined(FEATURE)
#define LEVEL "high"
#elif FEATURE
#define LEVEL "low"
#else
#error FEATURE must be set
#endif

#ifdef MISSING
this is skipped, though it is no C: @ $ 12ab 0x
#if 1
#else
#endif
#elif !defined MISSING && (UNKNOWN_NAME == 0)
#define BRANCH 2
#else
#define BRANCH 3
#endif

#ifndef FEATURE
#error not reached
#endif

#if 0
#error not reached
#elif 1 ? 2 + 3 == 5 : 0
#define MATH 1
#endif

#if -1 > 0u
#define WIDE "unsigned"
#else
#define WIDE "signed"
#endif

#if TWICE(FEATURE) == 6 && 'A' == 65 && (7 / 2) % 2 == 1 && ~0 == -1 && (1 << 40) > 0
#define MACRO_USED 1
#else
#define MACRO_USED 0
#endif

#if (2 || (1 / 0)) && __STDC__ == 1 && __STDC_VERSION__ >= 199901L
#define LAZY "lazy"
#endif

int main(void) {
    printf("%s %d %d %s %d %s\n", LEVEL, BRANCH, MATH, WIDE, MACRO_USED, LAZY);
#ifdef ZERO
    printf("an empty macro is defined\n");
#endif
#undef ZERO
#if defined ZERO || defined(NEVER)
    printf("unreachable\n");
#else
    printf("and can be taken back\n");
#endif
# /* a null directive */
#
    return 0;
}
