/* A provider that needs a CPU feature which no machine has. */
#include <gantry/provider.h>

GANTRY_MANIFEST("odd_cpu", "1.0", "gantry_no_such_feature", "");
