#ifndef DETAIL_LIMITS_H
#define DETAIL_LIMITS_H

#include "../../settings.h"

#define MAX_TEXT (8 * SCALE)
#define LIMIT_OF(n) ((n) * MAX_TEXT)

#endif
