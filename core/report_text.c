/* The report as text for people: what leads it, and who takes part. The other report_text_*.c print the rest
 * of the document, in its order. */
#include "report_print.h"

/* Errors of shapes have lines of their own, whose columns stay. */
static void print_finding(const char *finding, gt_text *text)
{
    char line[2200];
    const char *first = "* ";
    while (*finding) {
        size_t length = strcspn(finding, "\n");
        snprintf(line, sizeof line, "%.*s", (int)length, finding);
        gt_print_wrapped(text, first, "      ", line);
        finding += length + (finding[length] == '\n');
        first = "    ";
    }
}

static void print_head(const json_t *document, gt_text *text)
{
    char line[700];
    const json_t *model = json_object_get(document, "model");
    const char *path = gt_report_text_at(model, "path");
    snprintf(line, sizeof line, "Gantry %s, report on %.400s", gt_report_text_at(document, "gantry"),
             *path ? path : "a model from memory");
    gt_print_wrapped(text, "", "  ", line);
    size_t k;
    json_t *row;
    json_array_foreach(json_object_get(document, "summary"), k, row)
        print_finding(gt_report_text_at(row, "text"), text);
}

/* "options: fuse=off (session), share=on" */
static void print_provider_options(const json_t *row, gt_text *text)
{
    size_t k;
    json_t *option;
    gt_text line;
    const json_t *options = json_object_get(row, "options");
    gt_text_init(&line, text->allocator);
    json_array_foreach(options, k, option)
    {
        const char *origin = gt_report_text_at(option, "origin");
        bool plain = strcmp(origin, "default") == 0;
        gt_text_printf(
            &line, "%s%.80s=%.200s%s%s%s", k ? ", " : "options: ", gt_report_text_at(option, "key"),
            gt_report_text_at(option, "value"), plain ? "" : " (", plain ? "" : origin, plain ? "" : ")");
    }
    if (line.data)
        gt_print_wrapped(text, "       ", "         ", line.data);
    text->failed |= line.failed;
    gt_text_free(&line);
}

static void print_provider(const json_t *row, gt_text *text)
{
    gt_print_room room;
    bool requested = json_is_true(json_object_get(row, "requested"));
    bool created = json_is_true(json_object_get(row, "created"));
    gt_text_append(text, "  ", 2);
    gt_print_right(text, requested ? gt_print_count(row, "rank", &room) : "-", 2);
    gt_print_left(text, gt_report_text_at(row, "name"), 16);
    gt_print_left(text, created ? gt_report_text_at(row, "version") : "", 8);
    gt_print_left(text, created ? gt_report_text_at(row, "domain") : "", 10);
    static const char *const COUNTS[] = {"nodes_supported", "nodes_assigned", "nodes_executed"};
    for (size_t k = 0; k < sizeof COUNTS / sizeof *COUNTS; k++)
        gt_print_right(text, requested ? gt_print_count(row, COUNTS[k], &room) : "", 7);
    gt_print_last(text,
                  !requested ? created ? "not asked for" : "not asked for, not there"
                  : created  ? ""
                             : "NOT CREATED",
                  30);
    if (!created)
        gt_print_wrapped(text, "       ", "       ", gt_report_text_at(row, "detail"));
    else if (*gt_report_text_at(row, "libraries"))
        gt_print_wrapped(text, "       ", "       ", gt_report_text_at(row, "libraries"));
    if (created)
        print_provider_options(row, text);
}

static void print_providers(const json_t *document, gt_text *text)
{
    size_t k;
    json_t *row;
    gt_print_heading(text,
                     "Providers, in priority order; nodes it can run, it was given, the last run executed");
    gt_text_printf(text, "   # provider         version  domain     can run   given     ran\n");
    json_array_foreach(json_object_get(document, "providers"), k, row) print_provider(row, text);
    json_array_foreach(json_object_get(document, "domains"), k, row)
    {
        char line[300];
        snprintf(line, sizeof line, "%s is %s", gt_report_text_at(row, "name"),
                 gt_report_text_at(row, "device"));
        gt_print_wrapped(text, "     ", "       ", line);
    }
}

static void print_options(const json_t *document, gt_text *text)
{
    size_t k;
    json_t *row;
    gt_print_heading(text, "Options that are not at their default");
    json_array_foreach(json_object_get(document, "options"), k, row)
    {
        const char *origin = gt_report_text_at(row, "origin"), *asked = gt_report_text_at(row, "asked");
        if (strcmp(origin, "default") == 0)
            continue;
        char line[700];
        bool other = *asked && strcmp(asked, gt_report_text_at(row, "effective")) != 0;
        snprintf(line, sizeof line, "%.200s = %.300s (%s%s%.60s)", gt_report_text_at(row, "key"),
                 gt_report_text_at(row, "effective"),
                 strcmp(origin, "mask") == 0 ? "the CPUs this process may use" : origin,
                 other ? ", asked: " : "", other ? asked : "");
        gt_print_wrapped(text, "  ", "      ", line);
    }
}

bool gt_report_print(const json_t *document, gt_text *text)
{
    print_head(document, text);
    print_providers(document, text);
    gt_print_nodes(document, text);
    gt_print_tables(document, text);
    gt_print_accounts(document, text);
    print_options(document, text);
    return !text->failed;
}
