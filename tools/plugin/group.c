/* Groups of rules in child processes: this program again, with an internal argument. The child says on a pipe
 * which rule begins and how it ended; when it dies or hangs, that rule has failed, and another child goes on
 * behind it.
 *
 *     B rule        begins          D text         what is about to happen
 *     P F S R text  how it ended    A U name       a provider there is: available or not    E  the end
 */
#include "kit.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_TIMEOUTS 3 /* a plugin that hangs more often is not checked further */
#define CHILD_PIPE 3   /* the descriptor of the pipe in the child */

/* Plain things first: what fails there fails in others, too. The time is for one rule: a device's compiler on
 * a busy machine is slow. */
static const kit_group GROUPS[] = {
    {"open", kit_group_open, true, true, 300},
    {"cycles", kit_group_cycles, true, true, 300},
    {"domain", kit_group_domain, false, false, 300},
    {"judge", kit_group_judge, false, false, 300},
    {"shapes", kit_group_shapes, true, false, 300},
    {"operators", kit_group_operators, false, false, 300},
    {"programs", kit_group_programs, false, false, 300},
    {"faults", kit_group_faults, false, true, 300},
    {"session", kit_group_session, false, false, 300},
    {"versions", kit_group_versions, true, true, 300},
};
static const kit_group SHOW = {"show", kit_group_show, true, false, 300};
#define GROUP_COUNT (sizeof GROUPS / sizeof *GROUPS)

/* ---- the child ------------------------------------------------------------------------------- */

static void say(kit *k, char letter, const char *format, va_list args)
{
    char text[1024];
    vsnprintf(text, sizeof text, format, args);
    for (char *c = text; *c; c++)
        *c = (unsigned char)*c < ' ' ? ' ' : (unsigned char)*c > '~' ? '?' : *c;
    fprintf(k->out, "%c%s\n", letter, text);
    fflush(k->out);
}

#define SAY(k, letter, format)                                                                               \
    do {                                                                                                     \
        va_list args;                                                                                        \
        va_start(args, format);                                                                              \
        say(k, letter, format, args);                                                                        \
        va_end(args);                                                                                        \
    } while (0)

void kit_doing(kit *k, const char *format, ...)
{
    SAY(k, 'D', format);
}

/* A contract that was broken on the way makes a rule fail that would have passed. */
static void take_problem(kit *k)
{
    char problem[256];
    kit_host_take_problem(&k->host, problem, sizeof problem);
    if (*problem)
        kit_fail(k, "%s", problem);
}

void kit_pass(kit *k, const char *format, ...)
{
    take_problem(k);
    if (!atomic_exchange(&k->reported, true))
        SAY(k, 'P', format);
}

void kit_fail(kit *k, const char *format, ...)
{
    k->failed = true;
    if (!atomic_exchange(&k->reported, true))
        SAY(k, 'F', format);
}

void kit_skip(kit *k, const char *format, ...)
{
    if (!atomic_exchange(&k->reported, true))
        SAY(k, 'S', format);
}

void kit_refused(kit *k, const char *format, ...)
{
    take_problem(k);
    if (!atomic_exchange(&k->reported, true))
        SAY(k, 'R', format);
}

bool kit_failed(const kit *k)
{
    return k->failed;
}

bool kit_rule_begin(kit *k, const char *name)
{
    k->reported = k->failed = false;
    if (k->next++ < k->first)
        return false;
    snprintf(k->rule, sizeof k->rule, "%s", name);
    fprintf(k->out, "B%s\n", name);
    fflush(k->out);
    return true;
}

void kit_rule_end(kit *k, const char *what)
{
    kit_pass(k, "%s", what);
}

void kit_run_rules(kit *k, const kit_rule *rules, size_t count)
{
    for (size_t r = 0; r < count; r++) {
        if (!kit_rule_begin(k, rules[r].name))
            continue;
        rules[r].check(k);
        kit_rule_end(k, rules[r].what ? rules[r].what : "");
    }
}

/* Opens the plugin for groups that expect it open; false: a failure of the rule "opens" was said. */
static bool open_subject(kit *k)
{
    char words[2200];
    gantry_error err = GANTRY_ERROR_INIT;
    uint32_t first = k->first;
    k->first = 0;
    if (!kit_rule_begin(k, "opens"))
        return false;
    k->first = first;
    k->next = 0;
    gantry_status status = kit_subject_open(k->open, &k->host, k->provider, &k->subject, &err);
    if (status != GANTRY_OK) {
        kit_fail(k, "%s", kit_error_text(status, &err, words, sizeof words));
        return false;
    }
    return true;
}

static const kit_group *find_group(const char *name)
{
    for (size_t g = 0; g < GROUP_COUNT; g++)
        if (strcmp(GROUPS[g].name, name) == 0)
            return &GROUPS[g];
    return strcmp(name, SHOW.name) == 0 ? &SHOW : NULL;
}

static void run_child(kit *k, const kit_group *group)
{
    char words[2200] = "";
    gantry_error err = GANTRY_ERROR_INIT;
    k->open = kit_load(k->path, words, sizeof words);
    if (!k->open) {
        if (kit_rule_begin(k, "loads"))
            kit_fail(k, "%s", words);
        return;
    }
    if (kit_cpu_create(&k->cpu, &err) != GANTRY_OK) {
        if (kit_rule_begin(k, "loads"))
            kit_fail(k, "the CPU provider can't be had: %s", err.message);
        return;
    }
    kit_host_init(&k->host, k->config, k->cpu);
    if (group->closed || open_subject(k))
        group->run(k);
    kit_subject_close(&k->subject);
    kit_host_free(&k->host);
    kit_cpu_destroy(&k->cpu);
}

/* PATH CONFIG GROUP PROVIDER FIRST */
int kit_child_main(int argc, char **argv)
{
    struct rlimit no_core = {0, 0};
    const kit_group *group = argc == 5 ? find_group(argv[2]) : NULL;
    kit *k = calloc(1, sizeof *k);
    if (!group || !k) {
        free(k);
        return 2;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setrlimit(RLIMIT_CORE, &no_core);
    k->path = argv[0];
    k->config = argv[1];
    k->provider = (uint32_t)strtoul(argv[3], NULL, 10);
    k->first = (uint32_t)strtoul(argv[4], NULL, 10);
    /* Without a parent, in a debugger, it says the same on its output. */
    k->out = fcntl(CHILD_PIPE, F_SETFD, FD_CLOEXEC) == 0 ? fdopen(CHILD_PIPE, "w")
                                                         : fdopen(dup(STDOUT_FILENO), "w");
    if (!k->out) {
        free(k);
        return 2;
    }
    run_child(k, group);
    fprintf(k->out, "E\n");
    fclose(k->out);
    free(k);
    return 0;
}

/* ---- the parent ------------------------------------------------------------------------------ */

/* One child, as the parent sees it. */
typedef struct child {
    pid_t process;
    int pipe;
    char line[2048];
    size_t used;
    uint32_t begun; /* rules, of those that this child began */
    bool rule_open, ended, timed_out;
    char rule[64], doing[512];
} child;

typedef struct check {
    const kit_job *job;
    char provider[64]; /* of the rows */
    uint32_t provider_count;
    bool usable; /* it opens */
    uint32_t timeouts;
    char unavailable[64]; /* by provider: '1' */
    char names[64][64];
} check;

static bool start_child(const kit_job *job, const kit_group *group, uint32_t provider, uint32_t first,
                        child *out_child)
{
    extern char **environ;
    char provider_text[16], first_text[16];
    int ends[2];
    snprintf(provider_text, sizeof provider_text, "%u", provider);
    snprintf(first_text, sizeof first_text, "%u", first);
    char *argv[] = {(char[]){"gantry"},
                    (char[]){KIT_CHILD},
                    (char *)(uintptr_t)job->path,
                    (char *)(uintptr_t)job->config,
                    (char *)(uintptr_t)group->name,
                    provider_text,
                    first_text,
                    NULL};
    posix_spawn_file_actions_t actions;
    *out_child = (child){.pipe = -1};
    if (pipe2(ends, O_CLOEXEC) != 0)
        return false;
    if (ends[1] == CHILD_PIPE) { /* dup2 onto itself would leave it close-on-exec */
        int other = fcntl(ends[1], F_DUPFD_CLOEXEC, CHILD_PIPE + 1);
        close(ends[1]);
        ends[1] = other;
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], CHILD_PIPE);
    posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
    int result = posix_spawn(&out_child->process, "/proc/self/exe", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    out_child->pipe = ends[0];
    if (result == 0)
        return true;
    close(ends[0]);
    return false;
}

static void add_result(const check *c, const child *p, char letter, const char *text)
{
    kit_result row = {.state = letter == 'F'   ? KIT_FAIL
                               : letter == 'S' ? KIT_SKIP
                                               : KIT_PASS,
                      .refused = letter == 'R'};
    snprintf(row.provider, sizeof row.provider, "%s", c->provider);
    snprintf(row.rule, sizeof row.rule, "%s", p->rule);
    snprintf(row.text, sizeof row.text, "%s", text);
    kit_results_add(c->job->results, &row);
}

/* "Uname" or "Aname" for each provider. */
static void take_provider(check *c, const char *line)
{
    if (c->provider_count == sizeof c->unavailable)
        return;
    snprintf(c->names[c->provider_count], sizeof c->names[0], "%s", line + 1);
    c->unavailable[c->provider_count++] = *line == 'U' ? '1' : '0';
}

static void take_line(check *c, child *p, const char *line)
{
    switch (*line) {
    case 'B':
        snprintf(p->rule, sizeof p->rule, "%s", line + 1);
        *p->doing = 0;
        p->begun++;
        p->rule_open = true;
        break;
    case 'D':
        snprintf(p->doing, sizeof p->doing, "%s", line + 1);
        break;
    case 'P':
    case 'F':
    case 'S':
    case 'R':
        add_result(c, p, *line, line + 1);
        p->rule_open = false;
        break;
    case 'U':
    case 'A':
        c->usable = true;
        take_provider(c, line);
        break;
    case 'E':
        p->ended = true;
        break;
    default:
        break;
    }
}

/* What is there of the pipe; false at its end. */
static bool take_input(check *c, child *p)
{
    ssize_t got = read(p->pipe, p->line + p->used, sizeof p->line - 1 - p->used);
    if (got < 0 && errno == EINTR)
        return true;
    if (got <= 0)
        return false;
    p->used += (size_t)got;
    p->line[p->used] = 0;
    char *at = p->line;
    for (char *end; (end = strchr(at, '\n')); at = end + 1) {
        *end = 0;
        take_line(c, p, at);
    }
    p->used = strlen(at);
    memmove(p->line, at, p->used + 1);
    if (p->used == sizeof p->line - 1)
        p->used = 0;
    return true;
}

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Reads until the child closes its end, or says nothing for too long. */
static void follow_child(check *c, child *p, double seconds)
{
    int64_t limit = now_ms() + (int64_t)(seconds * 1000);
    uint32_t begun = 0;
    for (;;) {
        struct pollfd wait = {p->pipe, POLLIN, 0};
        int64_t left = limit - now_ms();
        int ready = left > 0 ? poll(&wait, 1, (int)left) : 0;
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0) {
            p->timed_out = true;
            kill(p->process, SIGKILL);
            return;
        }
        if (!take_input(c, p))
            return;
        if (p->begun != begun) { /* the time is for one rule */
            begun = p->begun;
            limit = now_ms() + (int64_t)(seconds * 1000);
        }
    }
}

static void explain_death(const check *c, const kit_group *group, uint32_t provider, uint32_t first,
                          const child *p, int status, double seconds)
{
    char text[1024], how[128];
    const char *doing = *p->doing ? p->doing : "the plugin was loaded";
    if (p->timed_out)
        snprintf(how, sizeof how, "did not come back within %g s", seconds);
    else if (WIFSIGNALED(status))
        snprintf(how, sizeof how, "crashed (signal %d, %s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else if (!p->begun && WEXITSTATUS(status) == 127)
        snprintf(how, sizeof how, "could not be tried: the program did not start");
    else
        snprintf(how, sizeof how, "ended the process with status %d", WEXITSTATUS(status));
    snprintf(text, sizeof text,
             "the plugin %s: %.300s. Alone: gdb --args gantry %s %.200s \"%.100s\" %s %u %u", how, doing,
             KIT_CHILD, c->job->path, c->job->config, group->name, provider, first);
    add_result(c, p, 'F', text);
}

/* All rules of a group, in as many children as it takes. */
static bool run_group(check *c, const kit_group *group, uint32_t provider)
{
    uint32_t first = 0;
    double seconds = c->job->seconds > 0 ? c->job->seconds : group->seconds;
    for (;;) {
        child p;
        int status = 0;
        if (!start_child(c->job, group, provider, first, &p)) {
            fprintf(stderr, "gantry plugin check: a process can't be started: %s\n", strerror(errno));
            return false;
        }
        follow_child(c, &p, seconds);
        close(p.pipe);
        while (waitpid(p.process, &status, 0) < 0 && errno == EINTR)
            continue;
        if (p.ended)
            return true;
        c->timeouts += p.timed_out;
        if (!p.begun)
            snprintf(p.rule, sizeof p.rule, "loads");
        /* Of the rule that was open: without its "opens", counted from where the child began. */
        uint32_t before = (group->closed ? 0 : 1) + 1,
                 place = first + (p.begun > before ? p.begun - before : 0);
        bool between =
            strcmp(p.rule, "opens") == 0; /* before a rule of its own began, or after the last one */
        if (p.rule_open || !p.begun || between)
            explain_death(c, group, provider, place, &p, status, seconds);
        /* Died before a rule of its own began: the next child would, too. */
        if (!p.begun || between || c->timeouts >= MAX_TIMEOUTS)
            return false;
        first += p.begun - (group->closed ? 0 : 1);
    }
}

static bool list_has(const char *list, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = list; at; at = strchr(at, ','), at = at ? at + 1 : NULL)
        if (strncmp(at, name, length) == 0 && (at[length] == 0 || at[length] == ','))
            return true;
    return false;
}

bool kit_check_groups(const char *only)
{
    char name[64];
    for (const char *at = only; at; at = strchr(at, ','), at = at ? at + 1 : NULL) {
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at, ","), at);
        if (find_group(name) && find_group(name) != &SHOW)
            continue;
        fprintf(stderr, "gantry plugin check: there is no group \"%s\"; there are", name);
        for (size_t g = 0; g < GROUP_COUNT; g++)
            fprintf(stderr, " %s", GROUPS[g].name);
        fprintf(stderr, "\n");
        return false;
    }
    return true;
}

void kit_check_plugin(const kit_job *job)
{
    check c = {.job = job};
    run_group(&c, &GROUPS[0], 0);
    for (size_t g = 1; g < GROUP_COUNT && c.usable && c.timeouts < MAX_TIMEOUTS; g++) {
        if (job->only && !list_has(job->only, GROUPS[g].name))
            continue;
        if (GROUPS[g].once) {
            *c.provider = 0;
            run_group(&c, &GROUPS[g], 0);
            continue;
        }
        for (uint32_t p = 0; p < c.provider_count && c.timeouts < MAX_TIMEOUTS; p++) {
            if (c.unavailable[p] == '1')
                continue;
            snprintf(c.provider, sizeof c.provider, "%s", c.provider_count > 1 ? c.names[p] : "");
            run_group(&c, &GROUPS[g], p);
        }
    }
    if (!c.usable || c.timeouts >= MAX_TIMEOUTS) {
        kit_result row = {.rule = "other rules", .state = KIT_SKIP};
        snprintf(row.text, sizeof row.text, "%s",
                 c.usable ? "the plugin did not come back several times"
                          : "they need a plugin that opens and whose tables are right");
        kit_results_add(job->results, &row);
    }
}

void kit_show_plugin(const kit_job *job)
{
    check c = {.job = job};
    run_group(&c, &SHOW, 0);
}
