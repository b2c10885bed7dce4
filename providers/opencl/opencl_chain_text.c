/* The kernel of a chain: each operator is a function in its own types, the kernel loads, calls and stores. */
#include "opencl_elementwise.h"

/* Steps with what they read from outside. */
typedef struct opencl_chain {
    const opencl_step *steps;
    uint32_t count;
    const opencl_operand *inputs[OPENCL_MAX_WALKED];
    uint32_t input_count;
} opencl_chain;

static void undefine(opencl_text *text, const char *name)
{
    opencl_text_add(text, "#undef %s\n#undef %s_C\n#undef LOAD_%s\n#undef STORE_%s\n", name, name, name,
                    name);
}

static void define(opencl_text *text, const char *name, gantry_dtype dtype)
{
    char types[512] = "";
    opencl_define_type(types, sizeof types, name, dtype);
    opencl_text_add(text, "%s", types);
}

/* A function of its own for each step: an operator's expression means other types than its neighbour's. */
static void write_step(const opencl_step *step, uint32_t index, opencl_text *text)
{
    char name[16];
    for (uint32_t k = 0; k < step->operand_count; k++) {
        snprintf(name, sizeof name, "T%u", k);
        define(text, name, step->operands[k].dtype);
    }
    snprintf(name, sizeof name, "R%u", index);
    define(text, name, step->output.dtype);
    opencl_elementwise_rename(index, text);
    opencl_elementwise_functions(step->operands[0].dtype, step->expression, text);
    opencl_text_add(text, "R%u_C step%u(", index, index);
    for (uint32_t k = 0; k < step->operand_count; k++)
        opencl_text_add(text, "T%u_C %c, ", k, (char)('a' + k));
    opencl_text_add(text, "float p, float q)\n{\n    return (R%u_C)(%s);\n}\n#undef W\n", index,
                    step->expression);
    for (uint32_t k = 0; k < step->operand_count; k++) {
        snprintf(name, sizeof name, "T%u", k);
        undefine(text, name);
    }
}

/* Where operand k of a step comes from: "v2", what was loaded, or "r0", an earlier step's result. */
static void name_source(const opencl_chain *chain, const opencl_operand *operand, char *out_name,
                        size_t capacity)
{
    for (uint32_t s = 0; s < chain->count; s++)
        if (chain->steps[s].output.value == operand->value)
            snprintf(out_name, capacity, "r%u", s);
    for (uint32_t k = 0; k < chain->input_count; k++)
        if (chain->inputs[k]->value == operand->value)
            snprintf(out_name, capacity, "v%u", k);
}

/* What a kernel of its own would have stored and the next one loaded. */
static void write_rounding(const opencl_step *step, uint32_t index, opencl_text *text)
{
    if (step->output.dtype == GANTRY_FLOAT16)
        opencl_text_add(text,
                        "    { ushort box; vstore_half_rte(r%u, 0, (half *)&box); r%u = vload_half(0, (const "
                        "half *)&box); }\n",
                        index, index);
    if (step->output.dtype == GANTRY_BFLOAT16)
        opencl_text_add(text, "    { ushort box; STORE_R%u(r%u, (&box), 0); r%u = LOAD_R%u((&box), 0); }\n",
                        index, index, index, index);
}

static void write_chain(const opencl_chain *chain, const opencl_walk *walk, opencl_text *text)
{
    uint32_t last = chain->count - 1;
    opencl_text_add(text, "%s", opencl_elementwise_macros);
    for (uint32_t k = 0; k < chain->input_count; k++) {
        char name[16];
        snprintf(name, sizeof name, "X%u", k);
        define(text, name, chain->inputs[k]->dtype);
    }
    for (uint32_t s = 0; s < chain->count; s++)
        write_step(&chain->steps[s], s, text);
    opencl_text_add(text, "__kernel void elementwise_chain(");
    for (uint32_t k = 0; k < chain->input_count; k++)
        opencl_text_add(text, "__global const X%u *x%u, ulong o%u, ", k, k, k);
    opencl_text_add(text, "__global R%u *y, ulong oy, uint n", last);
    for (uint32_t s = 0; s < chain->count; s++)
        opencl_text_add(text, ", float p%u, float q%u", s, s);
    opencl_walk_parameters(walk, text);
    opencl_text_add(text, ")\n{\n    size_t k = get_global_id(0);\n    if (k >= n)\n        return;\n");
    opencl_walk_indexes(walk, text);
    for (uint32_t k = 0; k < chain->input_count; k++)
        opencl_text_add(text, "    X%u_C v%u = LOAD_X%u(x%u, o%u + i%u);\n", k, k, k, k, k, k);
    for (uint32_t s = 0; s < chain->count; s++) {
        opencl_text_add(text, "    R%u_C r%u = step%u(", s, s, s);
        for (uint32_t k = 0; k < chain->steps[s].operand_count; k++) {
            char source[16] = "";
            name_source(chain, &chain->steps[s].operands[k], source, sizeof source);
            opencl_text_add(text, "%s, ", source);
        }
        opencl_text_add(text, "p%u, q%u);\n", s, s);
        if (s != last)
            write_rounding(&chain->steps[s], s, text);
    }
    opencl_text_add(text, "    STORE_R%u(r%u, y, oy + k);\n}\n", last, last);
}

static bool is_inside(const opencl_chain *chain, uint32_t value)
{
    for (uint32_t s = 0; s < chain->count; s++)
        if (chain->steps[s].output.value == value)
            return true;
    for (uint32_t k = 0; k < chain->input_count; k++)
        if (chain->inputs[k]->value == value)
            return true;
    return false;
}

static void find_inputs(opencl_chain *chain)
{
    for (uint32_t s = 0; s < chain->count; s++)
        for (uint32_t k = 0; k < chain->steps[s].operand_count; k++)
            if (!is_inside(chain, chain->steps[s].operands[k].value) &&
                chain->input_count < OPENCL_MAX_WALKED)
                chain->inputs[chain->input_count++] = &chain->steps[s].operands[k];
}

void opencl_chain_add(opencl_build *build, const opencl_step *steps, uint32_t count)
{
    opencl_chain chain = {.steps = steps, .count = count};
    const opencl_operand *y = &steps[count - 1].output;
    opencl_text text = {.used = 0};
    opencl_walk walk;
    double bytes = (double)opencl_bytes(y);
    find_inputs(&chain);
    opencl_walk_begin(&walk, y->rank, y->dims);
    for (uint32_t k = 0; k < chain.input_count; k++)
        opencl_walk_broadcast(&walk, chain.inputs[k]);
    opencl_walk_join(&walk);
    write_chain(&chain, &walk, &text);
    opencl_launch *launch = opencl_launch_add(build, "", text.data, "elementwise_chain");
    for (uint32_t k = 0; k < chain.input_count; k++) {
        opencl_arg_input(launch, chain.inputs[k]);
        bytes += (double)opencl_bytes(chain.inputs[k]);
        launch->in_place |= opencl_in_place(chain.inputs[k], y) << k;
    }
    opencl_arg_output(launch, y);
    opencl_arg_int(launch, (int32_t)walk.count);
    for (uint32_t s = 0; s < count; s++) {
        opencl_arg_float(launch, steps[s].p);
        opencl_arg_float(launch, steps[s].q);
    }
    opencl_walk_arguments(&walk, launch);
    opencl_launch_flat(launch, walk.count);
    opencl_launch_describe(launch, walk.rank == 1 ? "chain_flat" : "chain_strided", bytes,
                           (double)walk.count * count);
}
