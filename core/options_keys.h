/* The table of option keys: how each is parsed, and what holds when nobody sets it. */
#ifndef GT_CORE_OPTIONS_KEYS_H
#define GT_CORE_OPTIONS_KEYS_H

#include "options.h"

typedef struct gt_option_key gt_option_key;
/* Puts the value into *options; `name` is what follows a prefix key ("pin.NODE": NODE), else "". */
typedef gantry_status (*gt_option_parse_fn)(gt_options *options, const gt_option_key *key, const char *name,
                                            const char *value, gantry_error *err);

struct gt_option_key {
    const char *key; /* ends with '.' when it is a prefix */
    const char *fallback;
    gt_option_parse_fn parse;
    size_t field; /* of gt_options, for the parsers that fill one field */
    const char *words[5];
    uint64_t low, high;
};

/* All rows; keys before prefixes. */
const gt_option_key *gt_option_keys(uint32_t *out_count);
/* The row for a key, or NULL; *out_name is what follows a prefix. */
const gt_option_key *gt_option_find(const char *key, const char **out_name);
/* Puts the value of any key into *options; PROVIDER.KEY is a provider's to judge. */
gantry_status gt_option_parse(gt_options *options, const char *key, const char *value, gantry_error *err);

#endif
