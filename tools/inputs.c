/* Inputs and outputs of a command: files, pictures and random values to bound tensors, results to files. */
#include "cli.h"

#include "base/half.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int file_error(const char *what, const gantry_error *err)
{
    if (strncmp(err->message, what, strlen(what)) == 0)
        fprintf(stderr, "gantry: %s\n", err->message);
    else
        fprintf(stderr, "gantry: %s: %s\n", what, err->message);
    return CLI_FILE;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* "NAME=FILE" renames the one tensor of a file; a plain FILE keeps the names it has. */
static int read_file(const char *spec, io_tensors *inputs)
{
    gantry_error err = GANTRY_ERROR_INIT;
    const char *equals = strrchr(spec, '=');
    uint32_t before = inputs->count;
    if (io_read(equals ? equals + 1 : spec, inputs, &err) != GANTRY_OK)
        return file_error(spec, &err);
    if (!equals)
        return CLI_OK;
    if (inputs->count != before + 1) {
        fprintf(stderr, "gantry: %s: a name can be given to a file of one tensor only\n", spec);
        return CLI_USAGE;
    }
    io_tensor *tensor = &inputs->items[before];
    char *name = strndup(spec, (size_t)(equals - spec));
    if (!name)
        return CLI_RUN;
    free(tensor->name);
    tensor->name = name;
    return CLI_OK;
}

static int append(io_tensors *list, io_tensor tensor)
{
    if (list->count == list->capacity) {
        uint32_t capacity = list->capacity ? list->capacity * 2 : 8;
        io_tensor *items = realloc(list->items, capacity * sizeof *items);
        if (!items)
            return CLI_RUN;
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count++] = tensor;
    return CLI_OK;
}

/* ---- random values --------------------------------------------------------------------------- */

/* splitmix64: small, seeded, the same everywhere. */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static double next_unit(uint64_t *state)
{
    return (double)(next_random(state) >> 11) / 9007199254740992.0;
}

/* Floats in -1..1; integers 0 or 1, which are in range for most indexes and masks. */
static void fill_random(io_tensor *tensor, uint64_t *state)
{
    size_t count = tensor->size_bytes /
                   (gantry_dtype_bytes(tensor->dtype, 1) ? gantry_dtype_bytes(tensor->dtype, 1) : 1);
    for (size_t k = 0; k < count; k++) {
        double unit = next_unit(state);
        if (tensor->dtype == GANTRY_FLOAT32)
            ((float *)tensor->data)[k] = (float)(2 * unit - 1);
        else if (tensor->dtype == GANTRY_FLOAT64)
            ((double *)tensor->data)[k] = 2 * unit - 1;
        else if (tensor->dtype == GANTRY_FLOAT16) /* 0.5 to 1, either sign */
            ((uint16_t *)tensor->data)[k] = (uint16_t)(0x3800u | ((uint32_t)(unit * 65536) & 0x83ffu));
        else if (tensor->dtype == GANTRY_BFLOAT16)
            ((uint16_t *)tensor->data)[k] = (uint16_t)(0x3f00u | ((uint32_t)(unit * 65536) & 0x807fu));
        else if (tensor->dtype == GANTRY_INT64 || tensor->dtype == GANTRY_UINT64)
            ((int64_t *)tensor->data)[k] = unit < 0.5;
        else if (tensor->dtype == GANTRY_INT32 || tensor->dtype == GANTRY_UINT32)
            ((int32_t *)tensor->data)[k] = unit < 0.5;
        else if (tensor->dtype == GANTRY_INT16 || tensor->dtype == GANTRY_UINT16)
            ((int16_t *)tensor->data)[k] = unit < 0.5;
        else if (tensor->dtype == GANTRY_UINT8 || tensor->dtype == GANTRY_INT8 ||
                 tensor->dtype == GANTRY_BOOL)
            ((uint8_t *)tensor->data)[k] = unit < 0.5;
    }
}

/* A --dim names the symbol of a dim, or INPUT[axis]. */
static bool names_dim(const char *dim, const gantry_value_info *info, uint32_t axis)
{
    char place[512];
    size_t length = (size_t)(strrchr(dim, '=') - dim);
    const char *symbol = info->dim_names[axis];
    snprintf(place, sizeof place, "%s[%u]", info->name, axis);
    return (symbol && strlen(symbol) == length && strncmp(symbol, dim, length) == 0) ||
           (strlen(place) == length && strncmp(place, dim, length) == 0);
}

static int64_t dim_for(const cli_args *args, const gantry_value_info *info, uint32_t axis)
{
    for (int k = 0; k < args->dim_count; k++)
        if (names_dim(args->dims[k], info, axis))
            return strtoll(strrchr(args->dims[k], '=') + 1, NULL, 10);
    return 1;
}

/* A --dim that names nothing is a slip of the keyboard, and its extent would silently be 1. */
static int check_dims(const cli_args *args, const cli_session *session)
{
    for (int k = 0; k < args->dim_count; k++) {
        bool known = false;
        for (uint32_t i = 0; i < gantry_session_input_count(session->session); i++) {
            gantry_value_info info = {.struct_bytes = sizeof info};
            gantry_session_input(session->session, i, &info, NULL);
            for (int32_t d = 0; d < info.rank; d++)
                known |= info.dims[d] < 0 && names_dim(args->dims[k], &info, (uint32_t)d);
        }
        if (!known) {
            fprintf(
                stderr,
                "gantry: --dim %s: no input has a symbolic dim of that name (gantry inspect lists them)\n",
                args->dims[k]);
            return CLI_USAGE;
        }
    }
    return CLI_OK;
}

static int make_random(const cli_args *args, const gantry_value_info *info, uint64_t *state,
                       io_tensors *inputs)
{
    int64_t dims[GANTRY_MAX_RANK];
    uint32_t rank = info->rank < 0 ? 0 : (uint32_t)info->rank;
    for (uint32_t d = 0; d < rank; d++)
        dims[d] = info->dims[d] >= 0 ? info->dims[d] : dim_for(args, info, d);
    io_tensor tensor;
    gantry_error err = GANTRY_ERROR_INIT;
    if (io_tensor_create(info->name, info->dtype, rank, dims, &tensor, &err) != GANTRY_OK)
        return file_error(info->name, &err);
    fill_random(&tensor, state);
    return append(inputs, tensor);
}

/* ---- binding --------------------------------------------------------------------------------- */

static int gather_inputs(const cli_args *args, cli_session *session)
{
    int code = CLI_OK;
    for (int k = 0; k < args->input_count && code == CLI_OK; k++)
        code = read_file(args->inputs[k], &session->inputs);
    for (int k = 0; k < args->image_count && code == CLI_OK; k++) {
        gantry_error err = GANTRY_ERROR_INIT;
        io_tensor tensor;
        code = io_image_read(args->images[k], &tensor, &err) == GANTRY_OK ? append(&session->inputs, tensor)
                                                                          : file_error(args->images[k], &err);
    }
    return code;
}

static int check_names(const cli_session *session)
{
    for (uint32_t k = 0; k < session->inputs.count; k++) {
        bool known = false;
        for (uint32_t i = 0; i < gantry_session_input_count(session->session); i++) {
            gantry_value_info info = {.struct_bytes = sizeof info};
            gantry_session_input(session->session, i, &info, NULL);
            known |= strcmp(info.name, session->inputs.items[k].name) == 0;
        }
        if (!known) {
            fprintf(stderr, "gantry: the model has no input %s (gantry inspect lists them)\n",
                    session->inputs.items[k].name);
            return CLI_USAGE;
        }
    }
    return CLI_OK;
}

int cli_bind_inputs(const cli_args *args, cli_session *session)
{
    gantry_error err = GANTRY_ERROR_INIT;
    int code = gather_inputs(args, session);
    if (code == CLI_OK)
        code = check_names(session);
    if (code == CLI_OK)
        code = check_dims(args, session);
    if (code == CLI_OK && gantry_run_create(session->session, &session->run, &err) != GANTRY_OK)
        code = cli_fail("run", &err);
    uint64_t state = args->seed ? strtoull(args->seed, NULL, 10) : 0;
    for (uint32_t k = 0; k < gantry_session_input_count(session->session) && code == CLI_OK; k++) {
        gantry_value_info info = {.struct_bytes = sizeof info};
        if (gantry_session_input(session->session, k, &info, &err) != GANTRY_OK)
            return cli_fail("inputs", &err);
        if (!io_tensors_find(&session->inputs, info.name) && args->seed && !info.has_default)
            code = make_random(args, &info, &state, &session->inputs);
        const io_tensor *tensor = io_tensors_find(&session->inputs, info.name);
        if (code == CLI_OK && !tensor && !info.has_default) {
            fprintf(stderr, "gantry: input %s is given no value; use --inputs, --image or --random SEED\n",
                    info.name);
            code = CLI_RUN;
        }
        if (code != CLI_OK || !tensor)
            continue;
        gantry_tensor view;
        io_tensor_view(tensor, &view);
        if (gantry_run_bind_input(session->run, k, &view, &err) != GANTRY_OK)
            code = cli_fail("inputs", &err);
    }
    return code;
}

/* ---- outputs --------------------------------------------------------------------------------- */

static int borrow_output(const cli_session *session, uint32_t index, io_tensor *out_tensor)
{
    gantry_error err = GANTRY_ERROR_INIT;
    gantry_value_info info = {.struct_bytes = sizeof info};
    gantry_tensor view = {.struct_bytes = sizeof view};
    if (gantry_session_output(session->session, index, &info, &err) != GANTRY_OK ||
        gantry_run_output(session->run, index, &view, &err) != GANTRY_OK)
        return cli_fail("outputs", &err);
    io_tensor_borrow(info.name, &view, out_tensor);
    return CLI_OK;
}

int cli_write_outputs(const char *path, const cli_session *session)
{
    uint32_t count = gantry_session_output_count(session->session);
    io_tensor *tensors = calloc(count + 1, sizeof *tensors);
    int code = tensors ? CLI_OK : CLI_RUN;
    for (uint32_t k = 0; k < count && code == CLI_OK; k++)
        code = borrow_output(session, k, &tensors[k]);
    gantry_error err = GANTRY_ERROR_INIT;
    if (code == CLI_OK && io_npz_write(path, tensors, count, false, &err) != GANTRY_OK)
        code = file_error(path, &err);
    free(tensors);
    return code;
}

/* ---- checking -------------------------------------------------------------------------------- */

static double element(const io_tensor *tensor, size_t k)
{
    switch (tensor->dtype) {
    case GANTRY_FLOAT16:
        return gt_half_value(((const uint16_t *)tensor->data)[k]);
    case GANTRY_BFLOAT16:
        return gt_brain_value(((const uint16_t *)tensor->data)[k]);
    case GANTRY_FLOAT32:
        return ((const float *)tensor->data)[k];
    case GANTRY_FLOAT64:
        return ((const double *)tensor->data)[k];
    case GANTRY_INT64:
        return (double)((const int64_t *)tensor->data)[k];
    case GANTRY_INT32:
        return ((const int32_t *)tensor->data)[k];
    case GANTRY_INT8:
        return ((const int8_t *)tensor->data)[k];
    case GANTRY_UINT8:
    case GANTRY_BOOL:
        return ((const uint8_t *)tensor->data)[k];
    default:
        return NAN;
    }
}

static bool same_shape(const io_tensor *a, const io_tensor *b)
{
    return a->dtype == b->dtype && a->rank == b->rank &&
           memcmp(a->dims, b->dims, a->rank * sizeof *a->dims) == 0;
}

static bool is_float(gantry_dtype dtype)
{
    return dtype == GANTRY_FLOAT32 || dtype == GANTRY_FLOAT64 || dtype == GANTRY_FLOAT16 ||
           dtype == GANTRY_BFLOAT16;
}

/* Floats within atol + rtol * |want| (NaN equals NaN), everything else byte by byte. Prints the worst
 * element. */
static bool check_tensor(const io_tensor *got, const io_tensor *want, double atol, double rtol)
{
    if (!same_shape(got, want)) {
        printf("%s: FAILED: type or shape differs from the reference\n", want->name);
        return false;
    }
    if (!is_float(got->dtype)) {
        bool same = got->size_bytes == 0 || memcmp(got->data, want->data, got->size_bytes) == 0;
        printf("%s: %s\n", want->name, same ? "equal" : "FAILED: values differ");
        return same;
    }
    size_t count = got->size_bytes / gantry_dtype_bytes(got->dtype, 1), worst = 0, wrong = 0;
    double largest = 0;
    for (size_t k = 0; k < count; k++) {
        double a = element(got, k), b = element(want, k), difference = fabs(a - b);
        bool good = (isnan(a) && isnan(b)) || a == b || difference <= atol + rtol * fabs(b);
        wrong += !good;
        if (difference > largest || (!good && isnan(difference) && !isnan(largest))) {
            largest = difference;
            worst = k;
        }
    }
    printf("%s: %s: largest difference %.3g at element %zu", want->name, wrong ? "FAILED" : "ok", largest,
           worst);
    if (wrong)
        printf("; %zu of %zu beyond atol %g + rtol %g", wrong, count, atol, rtol);
    putchar('\n');
    return !wrong;
}

int cli_check_outputs(const cli_args *args, const cli_session *session)
{
    gantry_error err = GANTRY_ERROR_INIT;
    io_tensors references = {0};
    if (io_read(args->check, &references, &err) != GANTRY_OK)
        return file_error(args->check, &err);
    double atol = args->atol ? strtod(args->atol, NULL) : 1e-5,
           rtol = args->rtol ? strtod(args->rtol, NULL) : 1e-3;
    int code = CLI_OK;
    for (uint32_t k = 0; k < gantry_session_output_count(session->session) && code <= CLI_CHECK_FAILED; k++) {
        io_tensor got = {0};
        int borrowed = borrow_output(session, k, &got);
        if (borrowed != CLI_OK) {
            code = borrowed;
            break;
        }
        const io_tensor *want = io_tensors_find(&references, got.name);
        if (!want)
            printf("%s: FAILED: no reference of that name in %s\n", got.name, args->check);
        if (!want || !check_tensor(&got, want, atol, rtol))
            code = CLI_CHECK_FAILED;
    }
    io_tensors_free(&references);
    return code;
}
