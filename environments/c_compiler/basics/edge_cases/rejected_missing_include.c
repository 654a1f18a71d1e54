#include "this_file_is_not_there.h"

int main(void) { return 0; }
