/* A provider of a later ABI: refused by its manifest, before any of it is loaded. */
#include <gantry/provider.h>

__attribute__((used, section(GANTRY_MANIFEST_SECTION))) static const gantry_manifest manifest = {
    {'G', 'A', 'N', 'T', 'R', 'Y', 'P', 'M'}, sizeof(gantry_manifest), 7, 9, "newer", "3.0", "", ""};
