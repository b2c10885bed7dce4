/* Rules about a domain: memory, copies in order, queues, events, threads, measured costs, peers. */
#include "kit.h"

#include <math.h>
#include <stdlib.h>

#define BYTES ((size_t)100003) /* no multiple of anything */

static bool good(kit *k, gantry_status status, const gantry_error *err, const char *call)
{
    char words[2200];
    if (status != GANTRY_OK)
        kit_fail(k, "%s failed: %s", call, kit_error_text(status, err, words, sizeof words));
    return status == GANTRY_OK;
}

static void fill(unsigned char *bytes, size_t count, unsigned seed)
{
    for (size_t k = 0; k < count; k++)
        bytes[k] = (unsigned char)((k * 2654435761u + seed * 40503u) >> 13);
}

/* What a call that went well promised to make. */
static bool made(kit *k, const void *object, const char *call)
{
    if (!object)
        kit_fail(k, "%s returned OK, and left what it makes NULL", call);
    return object != NULL;
}

/* What the copy rules work with: two buffers of the device, two of the host. */
typedef struct bench {
    kit *k;
    gantry_domain *domain;
    gantry_queue *queue;
    void *a, *b;
    unsigned char *out, *in;
    gantry_error err;
} bench;

static bool bench_open_in(kit *k, gantry_domain *d, bench *out_bench)
{
    bench *t = out_bench;
    *t = (bench){.k = k, .domain = d, .err = GANTRY_ERROR_INIT};
    t->out = malloc(BYTES);
    t->in = calloc(1, BYTES);
    return t->out && t->in && good(k, d->queue_open(d->self, &t->queue, &t->err), &t->err, "queue_open") &&
           made(k, t->queue, "queue_open") &&
           good(k, d->alloc(d->self, BYTES, GANTRY_MEMORY_DEVICE, &t->a, &t->err), &t->err, "alloc") &&
           good(k, d->alloc(d->self, BYTES, GANTRY_MEMORY_DEVICE, &t->b, &t->err), &t->err, "alloc") &&
           made(k, t->a && t->b ? t->a : NULL, "alloc");
}

static bool bench_open(kit *k, bench *out_bench)
{
    return bench_open_in(k, &k->subject.domain, out_bench);
}

static void bench_close(bench *t)
{
    if (t->queue)
        t->domain->queue_sync(t->domain->self, t->queue, NULL);
    if (t->a)
        t->domain->free(t->domain->self, t->a, GANTRY_MEMORY_DEVICE);
    if (t->b)
        t->domain->free(t->domain->self, t->b, GANTRY_MEMORY_DEVICE);
    if (t->queue)
        t->domain->queue_close(t->domain->self, t->queue);
    free(t->out);
    free(t->in);
}

static bool copy(bench *t, gantry_copy_kind kind, void *target, size_t target_offset, void *source,
                 size_t source_offset, size_t bytes)
{
    static const char *const NAMES[] = {"a copy to the device", "a copy to the host",
                                        "a copy inside the device"};
    gantry_buffer to = {target, target_offset}, from = {source, source_offset};
    return good(t->k, t->domain->copy(t->domain->self, t->queue, kind, to, from, bytes, &t->err), &t->err,
                NAMES[kind]);
}

static bool sync(bench *t)
{
    return good(t->k, t->domain->queue_sync(t->domain->self, t->queue, &t->err), &t->err, "queue_sync");
}

static void expect(bench *t, const unsigned char *wanted, size_t bytes, const char *what)
{
    for (size_t k = 0; k < bytes; k++)
        if (t->in[k] != wanted[k]) {
            kit_fail(t->k, "%s: byte %zu of %zu is %u, %u was written", what, k, bytes, t->in[k], wanted[k]);
            return;
        }
}

static bool has_clock(const kit *k)
{
    return k->subject.domain_info.has_clock != 0;
}

/* ---- rules ----------------------------------------------------------------------------------- */

static void check_memory(kit *k)
{
    gantry_domain *d = &k->subject.domain;
    gantry_error err = GANTRY_ERROR_INIT;
    void *none = NULL, *huge = NULL, *one = NULL;
    uint64_t free_bytes = 0, total_bytes = 0;
    kit_doing(k, "alloc of 0 bytes");
    if (d->alloc(d->self, 0, GANTRY_MEMORY_DEVICE, &none, &err) == GANTRY_OK)
        d->free(d->self, none, GANTRY_MEMORY_DEVICE);
    for (int shift = 44; shift < 64; shift += 6) {
        kit_doing(k, "alloc of 2^%d bytes", shift);
        *err.message = 0;
        if (d->alloc(d->self, (size_t)1 << shift, GANTRY_MEMORY_DEVICE, &huge, &err) == GANTRY_OK)
            kit_fail(k, "alloc of 2^%d bytes succeeds: give GANTRY_RESOURCE when there is no such memory",
                     shift);
        else if (!*err.message)
            kit_fail(k, "alloc of 2^%d bytes fails without words", shift);
    }
    kit_doing(k, "alloc of 1 byte after those that failed");
    if (good(k, d->alloc(d->self, 1, GANTRY_MEMORY_DEVICE, &one, &err), &err, "alloc of 1 byte"))
        d->free(d->self, one, GANTRY_MEMORY_DEVICE);
    kit_doing(k, "memory_info");
    if (d->memory_info && d->memory_info(d->self, &free_bytes, &total_bytes) == GANTRY_OK &&
        free_bytes > total_bytes)
        kit_fail(k, "memory_info: %llu bytes are free of %llu", (unsigned long long)free_bytes,
                 (unsigned long long)total_bytes);
    kit_pass(k, "0 bytes give memory or a status, 2^44 and more a status with words");
}

/* Pieces at odd places, there and back. */
static void check_copies(kit *k)
{
    bench t;
    kit_doing(k, "copies of odd sizes to odd places");
    if (bench_open(k, &t)) {
        fill(t.out, BYTES, 1);
        for (size_t at = 0, piece = 1; at < BYTES && !kit_failed(k); at += piece, piece = piece * 3 + 2)
            copy(&t, GANTRY_COPY_TO_DEVICE, t.a, at, t.out, at, piece < BYTES - at ? piece : BYTES - at);
        bool sent = !kit_failed(k) && copy(&t, GANTRY_COPY_INSIDE, t.b, 3, t.a, 1, BYTES - 4) &&
                    copy(&t, GANTRY_COPY_TO_HOST, t.in, 1, t.b, 3, BYTES - 4) && sync(&t);
        if (sent && memcmp(t.in + 1, t.out + 1, BYTES - 4) != 0)
            kit_fail(k, "bytes that went to the device, inside it and back are not the same: offsets of both "
                        "ends are "
                        "bytes, at any alignment");
        kit_pass(k, "%zu bytes there, inside and back, at odd places", BYTES);
    }
    bench_close(&t);
}

/* The host may change its memory once the queue is synchronous again, and not see the device's before. */
static void check_after_sync(kit *k)
{
    bench t;
    kit_doing(k, "a copy whose source changes after queue_sync");
    if (bench_open(k, &t)) {
        unsigned char *kept = malloc(BYTES);
        fill(t.out, BYTES, 2);
        if (kept && copy(&t, GANTRY_COPY_TO_DEVICE, t.a, 0, t.out, 0, BYTES) && sync(&t)) {
            memcpy(kept, t.out, BYTES);
            memset(t.out, 0x5a, BYTES);
            if (copy(&t, GANTRY_COPY_TO_HOST, t.in, 0, t.a, 0, BYTES) && sync(&t))
                expect(&t, kept, BYTES, "the source was changed after queue_sync and the device saw it");
        }
        free(kept);
    }
    bench_close(&t);
}

/* One sync at the end: what was enqueued earlier is done earlier. */
static void check_order(kit *k)
{
    bench t;
    kit_doing(k, "four copies on one queue with one queue_sync");
    if (bench_open(k, &t)) {
        unsigned char *second = malloc(BYTES);
        fill(t.out, BYTES, 3);
        if (second)
            fill(second, BYTES, 4);
        if (second && copy(&t, GANTRY_COPY_TO_DEVICE, t.a, 0, t.out, 0, BYTES) &&
            copy(&t, GANTRY_COPY_INSIDE, t.b, 0, t.a, 0, BYTES) &&
            copy(&t, GANTRY_COPY_TO_DEVICE, t.a, 0, second, 0, BYTES) &&
            copy(&t, GANTRY_COPY_TO_HOST, t.in, 0, t.b, 0, BYTES) && sync(&t))
            expect(&t, t.out, BYTES, "copies of one queue were not done in their order");
        free(second);
    }
    bench_close(&t);
}

static void check_empty(kit *k)
{
    bench t;
    kit_doing(k, "copies of 0 bytes, and syncs of an empty queue");
    if (bench_open(k, &t)) {
        bool sent = sync(&t) && copy(&t, GANTRY_COPY_TO_DEVICE, t.a, 0, t.out, 0, 0) &&
                    copy(&t, GANTRY_COPY_INSIDE, t.b, 0, t.a, 0, 0) &&
                    copy(&t, GANTRY_COPY_TO_HOST, t.in, 0, t.b, 0, 0);
        if (sent && sync(&t))
            sync(&t);
    }
    bench_close(&t);
}

static void check_pinned(kit *k)
{
    bench t;
    void *pinned = NULL;
    kit_doing(k, "pinned memory");
    if (bench_open(k, &t)) {
        gantry_domain *d = t.domain;
        if (d->alloc(d->self, BYTES, GANTRY_MEMORY_PINNED, &pinned, &t.err) != GANTRY_OK) {
            kit_skip(k, "there is none: %s", t.err.message);
        } else {
            kit_doing(k, "writing to pinned memory, whose handle is an address of the host");
            fill(pinned, BYTES, 5);
            memcpy(t.out, pinned, BYTES);
            if (copy(&t, GANTRY_COPY_TO_DEVICE, t.a, 0, pinned, 0, BYTES) && sync(&t)) {
                memset(pinned, 0, BYTES);
                if (copy(&t, GANTRY_COPY_TO_HOST, pinned, 0, t.a, 0, BYTES) && sync(&t)) {
                    memcpy(t.in, pinned, BYTES);
                    expect(&t, t.out, BYTES, "pinned memory there and back");
                }
            }
            d->free(d->self, pinned, GANTRY_MEMORY_PINNED);
        }
    }
    bench_close(&t);
}

static void wait_on_event(bench *t, gantry_queue *other, gantry_event *begin, gantry_event *event)
{
    gantry_domain *d = t->domain;
    double elapsed = -1;
    gantry_queue *first = t->queue;
    if (!good(t->k, d->event_record(d->self, first, begin, &t->err), &t->err, "event_record") ||
        !copy(t, GANTRY_COPY_TO_DEVICE, t->a, 0, t->out, 0, BYTES) ||
        !good(t->k, d->event_record(d->self, first, event, &t->err), &t->err, "event_record") ||
        !good(t->k, d->event_wait(d->self, other, event, &t->err), &t->err, "event_wait"))
        return;
    t->queue = other;
    bool sent = copy(t, GANTRY_COPY_TO_HOST, t->in, 0, t->a, 0, BYTES) && sync(t);
    t->queue = first;
    if (!sent || !good(t->k, d->event_sync(d->self, event, &t->err), &t->err, "event_sync"))
        return;
    expect(t, t->out, BYTES, "a queue that waited for an event ran before it");
    if (has_clock(t->k)) {
        if (!good(t->k, d->event_elapsed(d->self, begin, event, &elapsed), &t->err, "event_elapsed"))
            return;
        if (!(elapsed >= 0 && elapsed < 60e9))
            kit_fail(t->k, "event_elapsed says that a copy took %g ns", elapsed);
        kit_pass(t->k, "between two queues, and with the host; a copy took %.3g us", elapsed / 1e3);
    }
    kit_pass(t->k, "between two queues, and with the host");
}

static void check_events(kit *k)
{
    bench t;
    gantry_queue *other = NULL;
    gantry_event *begin = NULL, *event = NULL;
    if (!k->subject.domain.event_create) {
        if (has_clock(k))
            kit_fail(k, "has_clock is set, and there are no events");
        kit_skip(k, "there are none: the executor waits with queue_sync");
        return;
    }
    kit_doing(k, "an event that one queue records and another waits for");
    if (bench_open(k, &t)) {
        gantry_domain *d = t.domain;
        fill(t.out, BYTES, 6);
        if (good(k, d->queue_open(d->self, &other, &t.err), &t.err, "queue_open") &&
            good(k, d->event_create(d->self, &begin, &t.err), &t.err, "event_create") &&
            good(k, d->event_create(d->self, &event, &t.err), &t.err, "event_create") &&
            made(k, begin && event ? event : NULL, "event_create"))
            wait_on_event(&t, other, begin, event);
        if (event)
            d->event_destroy(d->self, event);
        if (begin)
            d->event_destroy(d->self, begin);
        if (other)
            d->queue_close(d->self, other);
    }
    bench_close(&t);
}

static bool is_cost(double number, bool may_be_zero)
{
    return number < HUGE_VAL && (number > 0 || (may_be_zero && number == 0));
}

/* What probe wrote over what describe had said. */
static void check_measured(kit *k, const gantry_domain_info *before, const gantry_domain_info *after)
{
    if (after->cost_source != 'm' || !is_cost(after->to_device_bytes_per_ns, false) ||
        !is_cost(after->to_host_bytes_per_ns, false) || !is_cost(after->to_device_ns, true) ||
        !is_cost(after->to_host_ns, true))
        kit_fail(k, "probe left no measured costs: source '%c', %g and %g bytes/ns, %g and %g ns",
                 after->cost_source, after->to_device_bytes_per_ns, after->to_host_bytes_per_ns,
                 after->to_device_ns, after->to_host_ns);
    if (strcmp(after->name, before->name) != 0 || strcmp(after->device, before->device) != 0 ||
        after->alignment != before->alignment || after->separate_memory != before->separate_memory ||
        after->has_clock != before->has_clock || after->queue_count != before->queue_count)
        kit_fail(k, "probe changes what is no cost: it writes latencies, bandwidths and cost_source");
}

/* Twice: as the executor calls it, which wants no words, and into the shorter struct of an older host. */
static void check_probe(kit *k)
{
    gantry_domain *d = &k->subject.domain;
    gantry_domain_info info = k->subject.domain_info;
    gantry_domain_info *older = kit_at_the_edge(KIT_DOMAIN_INFO_1_0);
    if (!GANTRY_HAS(gantry_domain, d, probe)) {
        kit_skip(k, "there is none: what describe says counts");
        return;
    }
    kit_doing(k, "probe, without a place for words");
    uint64_t begin = k->host.table.now_ns(&k->host.table);
    gantry_status status = d->probe(d->self, &info, NULL);
    double ms = (double)(k->host.table.now_ns(&k->host.table) - begin) / 1e6;
    if (status != GANTRY_OK) {
        kit_fail(k, "probe failed: %s; what describe says counts then", gantry_status_text(status));
        return;
    }
    check_measured(k, &k->subject.domain_info, &info);
    if (ms > 1000)
        kit_fail(k, "probe took %.0f ms; 50 are its limit", ms);
    if (older) {
        memcpy(older, &k->subject.domain_info, KIT_DOMAIN_INFO_1_0);
        older->struct_bytes = KIT_DOMAIN_INFO_1_0;
        kit_doing(k, "probe again, into the shorter struct of an older host");
        if (d->probe(d->self, older, NULL) != GANTRY_OK || older->cost_source != 'm')
            kit_fail(k, "probe fails the second time, with the struct of an older host");
    }
    kit_pass(k, "%.1f ms; %.3g and %.3g GB/s", ms, info.to_device_bytes_per_ns, info.to_host_bytes_per_ns);
}

/* ---- peers ----------------------------------------------------------------------------------- */

static gantry_status stranger_describe(void *self, gantry_domain_info *out_info)
{
    (void)self;
    snprintf(out_info->name, sizeof out_info->name, "kit:0");
    out_info->alignment = 64;
    return GANTRY_OK;
}

static gantry_status stranger_alloc(void *self, size_t bytes, gantry_memory_kind kind, void **out_handle,
                                    gantry_error *err)
{
    (void)self, (void)kind;
    *out_handle = NULL;
    return gantry_fail(err, GANTRY_RESOURCE, "this domain has no memory, and %zu bytes neither", bytes);
}

/* A domain of somebody else, whose self leads to nothing that a plugin could know. */
static void ask_about_stranger(kit *k)
{
    gantry_domain *d = &k->subject.domain;
    gantry_domain stranger = {.struct_bytes = sizeof stranger,
                              .self = kit_at_the_edge(1),
                              .describe = stranger_describe,
                              .alloc = stranger_alloc};
    kit_doing(k, "peer about a domain kit:0 that another plugin brought, whose self is not this plugin's");
    if (d->peer(d->self, "kit:0", &stranger) != 0)
        kit_fail(k, "peer claims to copy from the domain kit:0, which it can't know: say 1 only for domains "
                    "that are yours, for example by an entry of the table");
}

/* Between two fills of the target, all on one queue with one sync: order, places and lengths count. */
static bool copy_from(bench *t, const gantry_domain *other, const char *name, void *source)
{
    gantry_domain *d = t->domain;
    unsigned char *expected = malloc(BYTES), *sent = malloc(BYTES);
    bool good_so_far = expected && sent;
    if (good_so_far) {
        gantry_buffer from = {source, 3}, to = {t->a, 7};
        fill(t->out, BYTES, 7);
        fill(sent, BYTES, 8);
        memcpy(expected, t->out, BYTES);
        memcpy(expected + 7, sent + 3, BYTES - 20);
        kit_doing(t->k, "copy_from_peer from %s, between copies on the same queue", name);
        good_so_far = copy(t, GANTRY_COPY_TO_DEVICE, t->a, 0, t->out, 0, BYTES) &&
                      good(t->k, d->copy_from_peer(d->self, t->queue, other, to, from, BYTES - 20, &t->err),
                           &t->err, "copy_from_peer") &&
                      good(t->k, d->copy_from_peer(d->self, t->queue, other, to, from, 0, &t->err), &t->err,
                           "copy_from_peer of 0 bytes") &&
                      copy(t, GANTRY_COPY_TO_HOST, t->in, 0, t->a, 0, BYTES) && sync(t);
    }
    if (good_so_far)
        expect(t, expected, BYTES, "copy_from_peer");
    free(expected);
    free(sent);
    return good_so_far;
}

/* The peer's side: filled before, and the same afterwards. */
static void drive_peer(kit *k, const gantry_domain *other, const char *name)
{
    bench t, there;
    gantry_domain table;
    KIT_COPY_TABLE(table, other);
    bool here = bench_open(k, &t);
    if (bench_open_in(k, &table, &there) && here) {
        fill(there.out, BYTES, 8);
        if (copy(&there, GANTRY_COPY_TO_DEVICE, there.a, 0, there.out, 0, BYTES) && sync(&there) &&
            copy_from(&t, other, name, there.a) &&
            copy(&there, GANTRY_COPY_TO_HOST, there.in, 0, there.a, 0, BYTES) && sync(&there))
            expect(&there, there.out, BYTES, "copy_from_peer changed its source");
    } else {
        kit_fail(k, "queue or memory of %s can't be had", name);
    }
    bench_close(&t);
    bench_close(&there);
}

static void check_peers(kit *k)
{
    gantry_domain *d = &k->subject.domain;
    uint32_t peers = 0, others = 0;
    if (!d->peer || !d->copy_from_peer) {
        kit_skip(k, "there are none: bytes go from device to device through host memory");
        return;
    }
    ask_about_stranger(k);
    for (uint32_t o = 0; o < k->subject.plugin.domain_count && !kit_failed(k); o++) {
        const gantry_domain *other = k->subject.plugin.domains[o];
        gantry_domain_info info = {.struct_bytes = sizeof info};
        if (other->describe(other->self, &info) != GANTRY_OK ||
            strcmp(info.name, k->subject.domain_info.name) == 0)
            continue;
        kit_doing(k, "peer about the domain %s", info.name);
        int first = d->peer(d->self, info.name, other), again = d->peer(d->self, info.name, other);
        others++;
        if (first != again || (first != 0 && first != 1))
            kit_fail(k, "peer says %d about the domain %s, and then %d: it is 1 or 0, always the same", first,
                     info.name, again);
        else if (first == 1)
            drive_peer(k, other, info.name);
        peers += first == 1;
    }
    if (others == 0)
        kit_pass(k, "a strange domain is none; the plugin has no other one, so nothing was copied");
    kit_pass(k,
             "a strange domain is none; %u of %u other domains of the plugin are, and bytes of them arrive",
             peers, others);
}

static void check_lost(kit *k)
{
    gantry_domain *d = &k->subject.domain;
    if (!d->lost)
        kit_skip(k, "there is no entry: never lost");
    else if (d->lost(d->self))
        kit_fail(k, "the device says it is lost");
}

static void *copy_for_a_while(void *arg)
{
    bench *t = arg;
    for (unsigned round = 0; round < 20 && !kit_failed(t->k); round++) {
        fill(t->out, BYTES, round + (unsigned)(uintptr_t)t->a);
        if (!copy(t, GANTRY_COPY_TO_DEVICE, t->a, 0, t->out, 0, BYTES) ||
            !copy(t, GANTRY_COPY_INSIDE, t->b, 0, t->a, 0, BYTES) ||
            !copy(t, GANTRY_COPY_TO_HOST, t->in, 0, t->b, 0, BYTES) || !sync(t))
            break;
        expect(t, t->out, BYTES, "two threads with queues of their own disturb each other");
    }
    return NULL;
}

static void check_threads(kit *k)
{
    bench benches[3];
    pthread_t threads[3];
    bool started[3] = {false, false, false};
    kit_doing(k, "copies on three queues from three threads");
    for (int t = 0; t < 3; t++)
        if (bench_open(k, &benches[t]))
            started[t] = pthread_create(&threads[t], NULL, copy_for_a_while, &benches[t]) == 0;
    for (int t = 0; t < 3; t++)
        if (started[t])
            pthread_join(threads[t], NULL);
    for (int t = 0; t < 3; t++)
        bench_close(&benches[t]);
}

void kit_group_domain(kit *k)
{
    static const kit_rule RULES[] = {
        {"domain: memory", check_memory, NULL},
        {"domain: copies", check_copies, NULL},
        {"domain: after sync", check_after_sync, "the source of a copy may change after queue_sync"},
        {"domain: order", check_order,
         "four copies on one queue with one queue_sync are done in their order"},
        {"domain: empty copies", check_empty, "copies of 0 bytes and syncs of an empty queue"},
        {"domain: pinned", check_pinned, "the host reads and writes it, copies go there and back"},
        {"domain: events", check_events, NULL},
        {"domain: threads", check_threads, "copies on three queues from three threads"},
        {"domain: probe", check_probe, NULL},
        {"domain: peers", check_peers, NULL},
        {"domain: lost", check_lost, "it is not lost"}};
    if (k->subject.own_domain)
        kit_run_rules(k, RULES, sizeof RULES / sizeof *RULES);
    else if (kit_rule_begin(k, "domain"))
        kit_skip(k, "it computes in the domain %s, which it doesn't bring", k->subject.provider_info.domain);
}
