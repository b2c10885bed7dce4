/* Rules about judge: pure, the same from any thread, ready for nodes that nobody has seen. */
#include "kit.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct verdicts {
    kit *k;
    uint32_t count;
    kit_model **models;
    gantry_verdict *seen; /* by model */
    atomic_int wrong;     /* a model with another verdict than seen, + 1 */
} verdicts;

static bool same_number(double a, double b)
{
    return a == b || (a != a && b != b);
}

static bool same(const gantry_verdict *a, const gantry_verdict *b)
{
    return a->supported == b->supported && a->estimate_source == b->estimate_source &&
           same_number(a->estimate_ns, b->estimate_ns) && a->executes_in == b->executes_in &&
           a->refusal.code == b->refusal.code && strcmp(a->refusal.operand, b->refusal.operand) == 0 &&
           strcmp(a->refusal.actual, b->refusal.actual) == 0 &&
           strcmp(a->refusal.required, b->refusal.required) == 0 &&
           strcmp(a->refusal.detail, b->refusal.detail) == 0 &&
           same_number(a->refusal.actual_number, b->refusal.actual_number) &&
           same_number(a->refusal.limit_number, b->refusal.limit_number);
}

/* All rows, once with sizes that come with the run and once with fixed ones. */
static bool make_models(kit *k, verdicts *v)
{
    static const int64_t SIZES[] = {-1, 4};
    *v = (verdicts){.k = k};
    v->models = calloc(2 * KIT_ROW_COUNT, sizeof(kit_model *));
    v->seen = calloc(2 * KIT_ROW_COUNT, sizeof *v->seen);
    for (uint32_t r = 0; v->models && v->seen && r < 2 * KIT_ROW_COUNT; r++) {
        gantry_error err = GANTRY_ERROR_INIT;
        kit_model *m = malloc(sizeof *m);
        if (m && kit_model_make(&KIT_ROWS[r / 2], SIZES[r % 2], k->cpu, m, &err)) {
            v->models[v->count++] = m;
            continue;
        }
        if (m)
            kit_model_free(m);
        free(m);
    }
    return v->count > 0;
}

static void free_models(verdicts *v)
{
    kit_models_free(v->count, v->models);
    free(v->models);
    free(v->seen);
}

static void *judge_all(void *arg)
{
    verdicts *v = arg;
    for (uint32_t m = 0; m < v->count; m++) {
        gantry_verdict verdict;
        if (kit_judge(&v->k->subject, v->models[m], &verdict) != GANTRY_OK || !same(&verdict, &v->seen[m]))
            atomic_store(&v->wrong, (int)m + 1);
    }
    return NULL;
}

static void say_wrong(const verdicts *v, const char *when)
{
    int wrong = atomic_load(&v->wrong);
    if (wrong)
        kit_fail(v->k, "the verdict on %s %s is another one %s: judge is pure, without state and device work",
                 v->models[wrong - 1]->row->op, v->models[wrong - 1]->row->inputs, when);
}

static void check_repeats(kit *k)
{
    verdicts v;
    pthread_t threads[2];
    int started = 0;
    if (make_models(k, &v)) {
        kit_doing(k, "judge of every operator, once");
        for (uint32_t m = 0; m < v.count; m++)
            kit_judge(&k->subject, v.models[m], &v.seen[m]);
        kit_doing(k, "judge of every operator, a second time");
        judge_all(&v);
        say_wrong(&v, "the second time");
        kit_doing(k, "judge of every operator, from three threads");
        for (; started < 2 && pthread_create(&threads[started], NULL, judge_all, &v) == 0; started++)
            continue;
        judge_all(&v);
        for (int t = 0; t < started; t++)
            pthread_join(threads[t], NULL);
        say_wrong(&v, "with several threads");
        kit_pass(k, "%u verdicts, the same each time and from three threads", v.count);
    }
    free_models(&v);
}

/* ---- nodes that nobody has seen -------------------------------------------------------------- */

/* The verdict lies at the end of what may be touched. */
static gantry_verdict *edge_verdict(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *map = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED || mprotect(map + page, page, PROT_NONE) != 0)
        return NULL;
    return (gantry_verdict *)(void *)(map + page - sizeof(gantry_verdict));
}

static void judge_strange(kit *k, kit_model *m, gantry_verdict *verdict, bool must_refuse, const char *what)
{
    const uint32_t nodes[1] = {0};
    gantry_verdict fresh = {.struct_bytes = sizeof fresh};
    *verdict = fresh;
    kit_doing(k, "judge of %s with %s", m->row->op, what);
    gantry_status status = k->subject.provider.judge(k->subject.provider.self, &m->view, nodes, 1, verdict);
    if (status != GANTRY_OK)
        kit_fail(k, "judge of %s with %s gave status %d: refuse it", m->row->op, what, (int)status);
    else if (must_refuse && verdict->supported)
        kit_fail(k, "judge takes %s with %s", m->row->op, what);
}

static void make_strange(kit *k, kit_model *m, gantry_verdict *verdict)
{
    m->node.domain = "com.example.kit";
    judge_strange(k, m, verdict, true, "a domain that is not ONNX");
    m->node.domain = "";
    m->node.op = "KitNoSuchOperator";
    judge_strange(k, m, verdict, true, "a name that is no operator");
    m->node.op = m->row->op;
    for (uint32_t v = 0; v < m->view.value_count; v++)
        m->values[v].rank = -1, m->values[v].dims = m->values[v].typical_dims = NULL,
        m->values[v].dim_names = NULL;
    judge_strange(k, m, verdict, false, "values of unknown rank");
    for (uint32_t v = 0; v < m->view.value_count; v++)
        m->values[v].dtype = GANTRY_STRING;
    judge_strange(k, m, verdict, true, "operands that are strings");
    m->node.input_count = 0;
    judge_strange(k, m, verdict, false, "no inputs");
}

static void check_strange(kit *k)
{
    gantry_verdict *verdict = edge_verdict();
    uint32_t count = 0;
    for (uint32_t r = 0; verdict && r < KIT_ROW_COUNT; r++) {
        gantry_error err = GANTRY_ERROR_INIT;
        kit_model *m = malloc(sizeof *m);
        if (m && kit_model_make(&KIT_ROWS[r], -1, k->cpu, m, &err)) {
            make_strange(k, m, verdict);
            kit_model_free(m);
            count++;
        }
        free(m);
    }
    kit_pass(k, "%u operators: unknown domains, names, ranks and types are refused or taken, without a crash",
             count);
}

void kit_group_judge(kit *k)
{
    static const kit_rule RULES[] = {{"judge is pure", check_repeats, NULL},
                                     {"judge of strange nodes", check_strange, NULL}};
    kit_run_rules(k, RULES, sizeof RULES / sizeof *RULES);
}
