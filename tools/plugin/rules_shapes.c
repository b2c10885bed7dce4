/* Rules about the shape rules of operators that a plugin brings: called with made-up inputs whose sizes are
 * numbers, come with the run, or are not known, and what they say must agree. */
#include "kit.h"

#include <stdlib.h>

#define MOST_INPUTS 6u
#define MOST_OUTPUTS 4u
#define MOST_DIMS 4u
#define EXTENTS 1024u
#define UNKNOWN INT64_MIN
#define GUARD 0x5a5a5a5au
#define RANDOM_SITUATIONS 240u

/* ---- a builder of extents -------------------------------------------------------------------- */

typedef enum extent_kind {
    EXTENT_NUMBER,
    EXTENT_SYMBOL, /* comes with the run; value is what it will be */
    EXTENT_RESULT  /* of an operation on symbols; value too */
} extent_kind;

typedef struct extent {
    extent_kind kind;
    int64_t value; /* UNKNOWN: of data that nobody has seen */
} extent;

/* What a rule may know of one input. */
typedef enum knowledge { KNOWS_NUMBERS, KNOWS_SYMBOLS, KNOWS_RANK, KNOWS_NOTHING, KNOWLEDGE_COUNT } knowledge;

static const char *const KNOWLEDGE[] = {"with sizes that are numbers", "with sizes that come with the run",
                                        "with sizes that are not known", "with ranks that are not known"};

typedef struct operand {
    gantry_dtype dtype; /* GANTRY_UNDEFINED: left out */
    int32_t rank;
    int64_t dims[MOST_DIMS];
    int64_t element; /* of one that holds extents */
} operand;

typedef struct situation {
    operand inputs[MOST_INPUTS];
    uint32_t input_count, output_count;
    bool strangers; /* with attributes that it does not know, in a later release's struct */
} situation;

struct gantry_dim_builder {
    const gantry_operator *op;
    const situation *situation;
    const knowledge *knows;
    extent extents[EXTENTS];
    uint32_t count;
    char problem[160];
};

GANTRY_PRINTF(2, 3) static gantry_dim complain(gantry_dim_builder *b, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (!*b->problem)
        vsnprintf(b->problem, sizeof b->problem, format, args);
    va_end(args);
    return GANTRY_NO_ID;
}

static gantry_dim make_extent(gantry_dim_builder *b, extent_kind kind, int64_t value)
{
    if (b->count == EXTENTS)
        return complain(b, "it makes more than %u extents", EXTENTS);
    b->extents[b->count] = (extent){kind, value};
    return b->count++;
}

typedef enum operation { ADD, SUBTRACT, MULTIPLY, DIVIDE, MINIMUM, MAXIMUM } operation;

static int64_t compute(operation op, int64_t a, int64_t b)
{
    int64_t r = UNKNOWN;
    if (a == UNKNOWN || b == UNKNOWN)
        return UNKNOWN;
    switch (op) {
    case ADD:
        return __builtin_add_overflow(a, b, &r) ? UNKNOWN : r;
    case SUBTRACT:
        return __builtin_sub_overflow(a, b, &r) ? UNKNOWN : r;
    case MULTIPLY:
        return __builtin_mul_overflow(a, b, &r) ? UNKNOWN : r;
    case DIVIDE:
        return b == 0 || b == -1 ? UNKNOWN : a / b - (a % b != 0 && (a < 0) != (b < 0));
    case MINIMUM:
        return a < b ? a : b;
    default:
        return a > b ? a : b;
    }
}

static gantry_dim combine(gantry_dim_builder *builder, operation op, gantry_dim a, gantry_dim b)
{
    if (a == GANTRY_NO_ID || b == GANTRY_NO_ID)
        return GANTRY_NO_ID;
    if (a >= builder->count || b >= builder->count)
        return complain(builder, "it combines an extent that nobody made");
    const extent *x = &builder->extents[a], *y = &builder->extents[b];
    bool numbers = x->kind == EXTENT_NUMBER && y->kind == EXTENT_NUMBER;
    return make_extent(builder, numbers ? EXTENT_NUMBER : EXTENT_RESULT, compute(op, x->value, y->value));
}

static gantry_dim dim_number(gantry_dim_builder *builder, int64_t value)
{
    return make_extent(builder, EXTENT_NUMBER, value);
}

static gantry_dim dim_add(gantry_dim_builder *builder, gantry_dim a, gantry_dim b)
{
    return combine(builder, ADD, a, b);
}

static gantry_dim dim_subtract(gantry_dim_builder *builder, gantry_dim a, gantry_dim b)
{
    return combine(builder, SUBTRACT, a, b);
}

static gantry_dim dim_multiply(gantry_dim_builder *builder, gantry_dim a, gantry_dim b)
{
    return combine(builder, MULTIPLY, a, b);
}

static gantry_dim dim_floor_divide(gantry_dim_builder *builder, gantry_dim a, gantry_dim b)
{
    return combine(builder, DIVIDE, a, b);
}

static gantry_dim dim_minimum(gantry_dim_builder *builder, gantry_dim a, gantry_dim b)
{
    return combine(builder, MINIMUM, a, b);
}

static gantry_dim dim_maximum(gantry_dim_builder *builder, gantry_dim a, gantry_dim b)
{
    return combine(builder, MAXIMUM, a, b);
}

static int dim_is_number(gantry_dim_builder *builder, gantry_dim a, int64_t *out_value)
{
    if (a >= builder->count || builder->extents[a].kind != EXTENT_NUMBER ||
        builder->extents[a].value == UNKNOWN)
        return 0;
    *out_value = builder->extents[a].value;
    return 1;
}

static gantry_dim dim_element(gantry_dim_builder *b, uint32_t input, uint32_t index)
{
    if (input >= 32 || !(b->op->shape_inputs >> input & 1))
        return complain(b, "it asks for elements of input %u, which shape_inputs does not name", input);
    if (input >= b->situation->input_count || b->knows[input] > KNOWS_SYMBOLS)
        return GANTRY_NO_ID;
    const operand *o = &b->situation->inputs[input];
    if (!o->dtype || (int64_t)index >= o->dims[0])
        return GANTRY_NO_ID;
    return make_extent(b, b->knows[input] == KNOWS_NUMBERS ? EXTENT_NUMBER : EXTENT_SYMBOL, o->element);
}

static gantry_dim dim_at_most(gantry_dim_builder *b, uint32_t output, uint32_t axis, gantry_dim bound)
{
    if (output >= b->situation->output_count || axis >= GANTRY_MAX_RANK)
        return complain(b, "it asks for extent %u of output %u, which is not there", axis, output);
    if (bound != GANTRY_NO_ID && bound >= b->count)
        return complain(b, "it bounds by an extent that nobody made");
    return make_extent(b, EXTENT_RESULT, bound == GANTRY_NO_ID ? UNKNOWN : b->extents[bound].value);
}

static const gantry_dim_table DIM_TABLE = {.struct_bytes = sizeof DIM_TABLE,
                                           .number = dim_number,
                                           .add = dim_add,
                                           .subtract = dim_subtract,
                                           .multiply = dim_multiply,
                                           .floor_divide = dim_floor_divide,
                                           .minimum = dim_minimum,
                                           .maximum = dim_maximum,
                                           .is_number = dim_is_number,
                                           .element = dim_element,
                                           .at_most = dim_at_most};

/* ---- one call -------------------------------------------------------------------------------- */

/* Attributes of a release whose struct has grown. */
typedef struct later_attribute {
    gantry_attribute known;
    unsigned char appended[48];
} later_attribute;

#define STRANGERS 3u

static void make_strangers(later_attribute *out_attributes)
{
    static const int64_t INTS[2] = {7, -7};
    static const gantry_attribute ROWS[STRANGERS] = {
        {.name = "kit_int", .kind = GANTRY_ATTR_INT, .count = 1, .i = -3},
        {.name = "kit_text", .kind = GANTRY_ATTR_STRING, .count = 1, .s = "kit", .length = 3},
        {.name = "kit_ints", .kind = GANTRY_ATTR_INTS, .count = 2, .ints = INTS}};
    memset(out_attributes, 0xff, STRANGERS * sizeof *out_attributes);
    for (uint32_t a = 0; a < STRANGERS; a++) {
        out_attributes[a].known = ROWS[a];
        out_attributes[a].known.struct_bytes = sizeof *out_attributes;
    }
}

/* What a rule said; extents as the numbers that they are or will be. */
typedef struct answer {
    gantry_status status;
    gantry_dtype dtypes[MOST_OUTPUTS];
    int32_t ranks[MOST_OUTPUTS];
    int64_t dims[MOST_OUTPUTS][GANTRY_MAX_RANK];
} answer;

/* Everything that a call points to; each array of the outputs has a guard behind it. */
typedef struct call {
    gantry_dim_builder builder;
    later_attribute attributes[STRANGERS];
    gantry_dtype input_dtypes[MOST_INPUTS];
    int32_t input_ranks[MOST_INPUTS];
    gantry_dim input_room[MOST_INPUTS][GANTRY_MAX_RANK];
    const gantry_dim *input_dims[MOST_INPUTS];
    uint32_t output_dtypes[MOST_OUTPUTS + 1];
    int32_t output_ranks[MOST_OUTPUTS + 1];
    gantry_dim output_room[MOST_OUTPUTS][GANTRY_MAX_RANK + 1];
    gantry_dim *output_dims[MOST_OUTPUTS];
} call;

_Static_assert(sizeof(gantry_dtype) == sizeof(uint32_t), "a guard behind types is a number that is none");

static void set_up(call *c, const gantry_operator *op, const situation *s, const knowledge *knows)
{
    memset(c, 0, sizeof *c);
    c->builder.op = op;
    c->builder.situation = s;
    c->builder.knows = knows;
    make_strangers(c->attributes);
    memset(c->input_room, 0xff, sizeof c->input_room); /* GANTRY_NO_ID */
    for (uint32_t i = 0; i < s->input_count; i++) {
        const operand *o = &s->inputs[i];
        c->input_dims[i] = c->input_room[i];
        c->input_dtypes[i] = o->dtype;
        c->input_ranks[i] = o->dtype && knows[i] != KNOWS_NOTHING ? o->rank : -1;
        for (int32_t d = 0; d < c->input_ranks[i] && knows[i] < KNOWS_RANK; d++)
            c->input_room[i][d] = make_extent(
                &c->builder, knows[i] == KNOWS_NUMBERS ? EXTENT_NUMBER : EXTENT_SYMBOL, o->dims[d]);
    }
    for (uint32_t o = 0; o < MOST_OUTPUTS; o++) {
        c->output_dtypes[o] = o < s->output_count ? GANTRY_UNDEFINED : GUARD;
        c->output_ranks[o] = o < s->output_count ? -1 : (int32_t)GUARD;
        memset(c->output_room[o], 0xff, sizeof c->output_room[o]);
        c->output_room[o][GANTRY_MAX_RANK] = GUARD;
        c->output_dims[o] = c->output_room[o];
    }
    c->output_dtypes[MOST_OUTPUTS] = GUARD;
    c->output_ranks[MOST_OUTPUTS] = (int32_t)GUARD;
}

/* "float32[2,3], int64[1], nothing" */
static void describe_situation(const situation *s, char *out_text, size_t capacity)
{
    size_t at = (size_t)snprintf(out_text, capacity, "%s", s->input_count ? "" : "no inputs");
    for (uint32_t i = 0; i < s->input_count && at < capacity; i++) {
        const operand *o = &s->inputs[i];
        at += (size_t)snprintf(out_text + at, capacity - at, "%s%s", i ? ", " : "",
                               o->dtype ? gantry_dtype_text(o->dtype) : "nothing");
        for (int32_t d = 0; o->dtype && d < o->rank && at < capacity; d++)
            at += (size_t)snprintf(out_text + at, capacity - at, "%s%lld%s", d ? "," : "[",
                                   (long long)o->dims[d], d + 1 == o->rank ? "]" : "");
    }
}

typedef struct driver {
    kit *k;
    const gantry_operator *op;
    call call;
    uint32_t inferred, refused;
    uint64_t digest; /* of all answers */
} driver;

GANTRY_PRINTF(4, 5)
static void blame(driver *d, const situation *s, const char *level, const char *format, ...)
{
    char inputs[256], what[512];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    describe_situation(s, inputs, sizeof inputs);
    kit_fail(d->k, "(%s) %s: %s", inputs, level, what);
}

static bool guards_hold(const call *c, const situation *s)
{
    bool good = true;
    for (uint32_t o = 0; o < MOST_OUTPUTS; o++)
        good = good && c->output_room[o][GANTRY_MAX_RANK] == GUARD;
    for (uint32_t o = s->output_count; o <= MOST_OUTPUTS; o++)
        good = good && c->output_dtypes[o] == GUARD && (uint32_t)c->output_ranks[o] == GUARD;
    return good;
}

static void take_output(driver *d, const situation *s, const char *level, uint32_t o, answer *out)
{
    const call *c = &d->call;
    out->dtypes[o] = (gantry_dtype)c->output_dtypes[o];
    out->ranks[o] = c->output_ranks[o];
    if (c->output_dtypes[o] >= GANTRY_DTYPE_COUNT || out->ranks[o] < -1 || out->ranks[o] > GANTRY_MAX_RANK) {
        blame(d, s, level, "output %u gets the type %u and the rank %d", o, c->output_dtypes[o],
              out->ranks[o]);
        out->ranks[o] = -1;
    }
    for (int32_t axis = 0; axis < out->ranks[o]; axis++) {
        gantry_dim dim = c->output_room[o][axis];
        bool made = dim < c->builder.count;
        out->dims[o][axis] = made ? c->builder.extents[dim].value : UNKNOWN;
        if (!made && dim != GANTRY_NO_ID)
            blame(d, s, level, "extent %d of output %u is none that the table of extents made", axis, o);
    }
}

/* Calls the rule; a broken contract fails the kit's rule. wordless: without a place for words. */
static void ask(driver *d, const situation *s, const knowledge *knows, const char *level, bool wordless,
                answer *out)
{
    call *c = &d->call;
    gantry_error err = GANTRY_ERROR_INIT;
    set_up(c, d->op, s, knows);
    gantry_infer_args args = {.struct_bytes = sizeof args,
                              .node_name = "kit_node",
                              .attribute_count = s->strangers ? STRANGERS : 0,
                              .attributes = s->strangers ? &c->attributes[0].known : NULL,
                              .input_count = s->input_count,
                              .input_dtypes = c->input_dtypes,
                              .input_ranks = c->input_ranks,
                              .input_dims = c->input_dims,
                              .output_count = s->output_count,
                              .output_dtypes = (gantry_dtype *)c->output_dtypes,
                              .output_ranks = c->output_ranks,
                              .output_dims = c->output_dims,
                              .builder = &c->builder,
                              .dims = &DIM_TABLE};
    memset(out, 0, sizeof *out);
    out->status = d->op->infer(d->op->self, &args, wordless ? NULL : &err);
    if (out->status != GANTRY_OK && out->status != GANTRY_MODEL_TYPE && out->status != GANTRY_MODEL_SHAPE)
        blame(d, s, level,
              "infer gives %s; a model that does not fit is GANTRY_MODEL_TYPE or GANTRY_MODEL_SHAPE",
              gantry_status_text(out->status));
    else if (out->status != GANTRY_OK && !wordless && !*err.message)
        blame(d, s, level, "infer refuses it without words: the user reads them");
    if (*c->builder.problem)
        blame(d, s, level, "%s", c->builder.problem);
    if (!guards_hold(c, s))
        blame(d, s, level, "infer writes behind the %u outputs, or behind %d extents of one", s->output_count,
              GANTRY_MAX_RANK);
    for (uint32_t o = 0; out->status == GANTRY_OK && o < s->output_count; o++)
        take_output(d, s, level, o, out);
    for (size_t b = 0; b < sizeof *out; b++)
        d->digest = (d->digest ^ ((const unsigned char *)out)[b]) * UINT64_C(1099511628211);
}

/* ---- what several calls say ------------------------------------------------------------------ */

static bool is_same(const answer *a, const answer *b)
{
    return a->status == b->status && memcmp(a->dtypes, b->dtypes, sizeof a->dtypes) == 0 &&
           memcmp(a->ranks, b->ranks, sizeof a->ranks) == 0 && memcmp(a->dims, b->dims, sizeof a->dims) == 0;
}

/* less: of the same inputs, of which the rule was told less. Not known is fine; other is not. */
static void check_agreement(driver *d, const situation *s, const answer *known, const answer *less,
                            const char *level)
{
    if (less->status != GANTRY_OK) {
        blame(d, s, level,
              "infer refuses what it takes with sizes that are numbers: what is not known is no failure, "
              "leave the output's rank at -1 or its extent at GANTRY_NO_ID");
        return;
    }
    for (uint32_t o = 0; o < s->output_count; o++) {
        if (less->dtypes[o] && less->dtypes[o] != known->dtypes[o])
            blame(d, s, level, "output %u becomes %s, and %s with sizes that are numbers", o,
                  gantry_dtype_text(less->dtypes[o]), gantry_dtype_text(known->dtypes[o]));
        if (less->ranks[o] != -1 && less->ranks[o] != known->ranks[o])
            blame(d, s, level, "output %u gets the rank %d, and %d with sizes that are numbers", o,
                  less->ranks[o], known->ranks[o]);
        for (int32_t axis = 0; axis < less->ranks[o]; axis++)
            if (less->dims[o][axis] != UNKNOWN && less->dims[o][axis] != known->dims[o][axis])
                blame(d, s, level,
                      "extent %d of output %u will be %lld, and is %lld with sizes that are numbers", axis, o,
                      (long long)less->dims[o][axis], (long long)known->dims[o][axis]);
    }
}

static uint32_t draw(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void tell(const driver *d, const situation *s, const char *how)
{
    char inputs[256];
    describe_situation(s, inputs, sizeof inputs);
    kit_doing(d->k, "infer of %s for (%s)%s", d->op->name, inputs, how);
}

static void drive_situation(driver *d, const situation *s, bool say, uint32_t *seed)
{
    answer known, again, less;
    knowledge knows[MOST_INPUTS] = {KNOWS_NUMBERS};
    ask(d, s, knows, KNOWLEDGE[KNOWS_NUMBERS], false, &known);
    if (say)
        tell(d, s, ", once more without a place for words: err is NULL");
    ask(d, s, knows, KNOWLEDGE[KNOWS_NUMBERS], true, &again);
    if (say)
        tell(d, s, ", with sizes that come with the run or are not known");
    if (!is_same(&known, &again))
        blame(d, s, "called twice", "infer does not say the same the second time: it has to be pure");
    d->inferred += known.status == GANTRY_OK;
    d->refused += known.status != GANTRY_OK;
    for (int level = KNOWS_SYMBOLS; level < KNOWLEDGE_COUNT + 2; level++) {
        const char *what = level < KNOWLEDGE_COUNT ? KNOWLEDGE[level] : "with some inputs that are not known";
        for (uint32_t i = 0; i < s->input_count; i++)
            knows[i] = level < KNOWLEDGE_COUNT ? (knowledge)level : (knowledge)(draw(seed) % KNOWLEDGE_COUNT);
        ask(d, s, knows, what, false, &less);
        if (known.status == GANTRY_OK)
            check_agreement(d, s, &known, &less, what);
    }
}

/* ---- situations ------------------------------------------------------------------------------ */

static const gantry_dtype DTYPES[] = {GANTRY_FLOAT32, GANTRY_INT64, GANTRY_FLOAT16, GANTRY_UINT8};
static const int64_t SIZES[][MOST_DIMS] = {{3, 3, 3, 3}, {2, 3, 4, 5}, {1, 1, 1, 1}, {0, 0, 0, 0}};
#define DTYPE_COUNT (sizeof DTYPES / sizeof *DTYPES)
#define SIZE_COUNT (sizeof SIZES / sizeof *SIZES)
#define UNIFORM_SITUATIONS (DTYPE_COUNT * SIZE_COUNT * (MOST_DIMS + 1))

static uint32_t within(uint32_t least, uint32_t most, uint32_t limit, uint32_t number)
{
    uint32_t end = most < limit ? most : limit;
    return least >= end ? (least < limit ? least : limit) : least + number % (end - least + 1);
}

static void set_operand(operand *o, uint32_t dtype, uint32_t sizes, uint32_t rank)
{
    *o = (operand){.dtype = DTYPES[dtype], .rank = (int32_t)rank, .element = 2};
    memcpy(o->dims, SIZES[sizes], sizeof o->dims);
}

/* First inputs that are all alike, then any mixture; inputs of extents are short lists of int64. */
static void make_situation(const gantry_operator *op, uint32_t number, uint32_t *seed, situation *out)
{
    bool uniform = number < UNIFORM_SITUATIONS;
    *out = (situation){.strangers = number % 2 == 1,
                       .input_count = within(op->input_min, op->input_max, MOST_INPUTS, draw(seed)),
                       .output_count = within(op->output_min, op->output_max, MOST_OUTPUTS, draw(seed))};
    for (uint32_t i = 0; i < out->input_count; i++) {
        if (uniform)
            set_operand(&out->inputs[i], number % DTYPE_COUNT, number / DTYPE_COUNT % SIZE_COUNT,
                        number / (DTYPE_COUNT * SIZE_COUNT));
        else if (i > 0 && draw(seed) % 3 == 0)
            out->inputs[i] = out->inputs[0];
        else
            set_operand(&out->inputs[i], draw(seed) % DTYPE_COUNT, draw(seed) % (SIZE_COUNT - 1),
                        draw(seed) % (MOST_DIMS + 1));
        if (i < 32 && op->shape_inputs >> i & 1)
            out->inputs[i] =
                (operand){.dtype = GANTRY_INT64, .rank = 1, .dims = {1 + draw(seed) % 4}, .element = 2};
        if (!uniform && i >= op->input_min && draw(seed) % 4 == 0)
            out->inputs[i] = (operand){.dtype = GANTRY_UNDEFINED, .rank = -1};
    }
}

static void drive(driver *d, bool say)
{
    uint32_t seed = 1;
    for (uint32_t n = 0; n < UNIFORM_SITUATIONS + RANDOM_SITUATIONS && !kit_failed(d->k); n++) {
        situation s;
        make_situation(d->op, n, &seed, &s);
        if (say)
            tell(d, &s,
                 s.strangers ? ", with attributes in a later release's struct: step by their struct_bytes"
                             : "");
        drive_situation(d, &s, say, &seed);
    }
}

static void *drive_beside(void *arg)
{
    drive(arg, false);
    return NULL;
}

static void check_operator(kit *k, const gantry_operator *op)
{
    driver *drivers = calloc(4, sizeof *drivers);
    pthread_t threads[3];
    bool started[3] = {false, false, false};
    for (int t = 0; drivers && t < 4; t++)
        drivers[t] = (driver){.k = k, .op = op};
    if (drivers)
        drive(drivers, true);
    kit_doing(k, "infer of %s from three threads", op->name);
    for (int t = 0; drivers && t < 3 && !kit_failed(k); t++)
        started[t] = pthread_create(&threads[t], NULL, drive_beside, &drivers[t + 1]) == 0;
    for (int t = 0; t < 3; t++)
        if (started[t])
            pthread_join(threads[t], NULL);
    for (int t = 0; t < 3; t++)
        if (started[t] && drivers[t + 1].digest != drivers->digest)
            kit_fail(k, "infer says other things when three threads call it at once: it has to be pure");
    if (drivers && drivers->inferred == 0)
        kit_skip(k, "it refuses all of %u made-up calls, with words: nothing to compare", drivers->refused);
    else if (drivers)
        kit_pass(k, "%u calls inferred, %u refused with words; with less known it says the same or less",
                 drivers->inferred, drivers->refused);
    free(drivers);
}

void kit_group_shapes(kit *k)
{
    const gantry_plugin *p = &k->subject.plugin;
    if ((!p->operators || p->operator_count == 0) && kit_rule_begin(k, "shape rules"))
        kit_skip(k, "it brings no operators of its own");
    for (uint32_t o = 0; p->operators && o < p->operator_count; o++) {
        char rule[64];
        gantry_operator op;
        KIT_COPY_TABLE(op, p->operators[o]);
        snprintf(rule, sizeof rule, "shapes of %.50s", op.name ? op.name : "?");
        if (!op.infer || !op.name || !kit_rule_begin(k, rule))
            continue;
        check_operator(k, &op);
        kit_rule_end(k, "");
    }
}
