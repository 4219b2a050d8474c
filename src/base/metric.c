/*
 * Registration happens in constructors, before main and any thread; after that the list never
 * changes, so reading it needs no lock. It is kept sorted by name, so that the page does not depend
 * on link order. Cells are relaxed atomics: each is right by itself, a page is not one instant.
 * A histogram's count is the sum of its buckets, so that the two always agree.
 */
#include "base/metric.h"

#include <assert.h>
#include <stdio.h>

static struct metric *metrics;

static unsigned label_count(const struct metric *metric)
{
    unsigned count = 0;

    while (metric->label && metric->values[count])
        count++;
    return metric->label ? count : 1;
}

static unsigned bound_count(const struct metric *metric)
{
    unsigned count = 0;

    while (metric->bounds[count] > 0)
        count++;
    return count;
}

void metric_register(struct metric *metric)
{
    struct metric **at = &metrics;

    assert(label_count(metric) <= METRIC_LABELS_MAX && bound_count(metric) <= METRIC_BUCKETS_MAX);
    while (*at && strcmp((*at)->name, metric->name) < 0)
        at = &(*at)->next;
    assert(!*at || strcmp((*at)->name, metric->name) != 0); /* two files chose one name */
    metric->next = *at;
    *at = metric;
}

void metric_add(struct metric *metric, unsigned index, int64_t by)
{
    assert(index < METRIC_LABELS_MAX);
    atomic_fetch_add_explicit(&metric->cells[index], by, memory_order_relaxed);
}

void metric_set(struct metric *metric, unsigned index, int64_t value)
{
    assert(index < METRIC_LABELS_MAX);
    atomic_store_explicit(&metric->cells[index], value, memory_order_relaxed);
}

void metric_observe_us(struct metric *metric, int64_t us)
{
    unsigned at = 0;

    if (us < 0)
        us = 0;
    while (metric->bounds[at] > 0 && (double)us > metric->bounds[at] * 1e6)
        at++;
    atomic_fetch_add_explicit(&metric->buckets[at], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&metric->sum_us, (uint64_t)us, memory_order_relaxed);
}

static void put_escaped(struct buf *out, const char *text, bool quotes)
{
    for (; *text; text++) {
        if (*text == '\\')
            buf_puts(out, "\\\\");
        else if (*text == '\n')
            buf_puts(out, "\\n");
        else if (*text == '"' && quotes)
            buf_puts(out, "\\\"");
        else
            buf_putc(out, *text);
    }
}

static void put_cells(struct buf *out, const struct metric *metric)
{
    for (unsigned i = 0; i < label_count(metric); i++) {
        long long value = atomic_load_explicit(&metric->cells[i], memory_order_relaxed);

        buf_puts(out, metric->name);
        if (metric->label) {
            buf_printf(out, "{%s=\"", metric->label);
            put_escaped(out, metric->values[i], true);
            buf_puts(out, "\"}");
        }
        buf_printf(out, " %lld\n", value);
    }
}

static void put_histogram(struct buf *out, const struct metric *metric)
{
    unsigned bounds = bound_count(metric);
    uint64_t sum_us = atomic_load_explicit(&metric->sum_us, memory_order_relaxed);
    uint64_t total = 0;

    for (unsigned i = 0; i <= bounds; i++) {
        total += atomic_load_explicit(&metric->buckets[i], memory_order_relaxed);
        if (i < bounds)
            buf_printf(out, "%s_bucket{le=\"%g\"} ", metric->name, metric->bounds[i]);
        else
            buf_printf(out, "%s_bucket{le=\"+Inf\"} ", metric->name);
        buf_u64(out, total);
        buf_putc(out, '\n');
    }
    buf_printf(out, "%s_sum %llu.%06u\n", metric->name, (unsigned long long)(sum_us / 1000000),
               (unsigned)(sum_us % 1000000));
    buf_printf(out, "%s_count %llu\n", metric->name, (unsigned long long)total);
}

void metric_text(struct buf *out)
{
    static const char *const types[] = { "counter", "gauge", "histogram" };

    for (const struct metric *metric = metrics; metric; metric = metric->next) {
        buf_printf(out, "# HELP %s ", metric->name);
        put_escaped(out, metric->help, false);
        buf_printf(out, "\n# TYPE %s %s\n", metric->name, types[metric->type]);
        if (metric->type == METRIC_HISTOGRAM_TYPE)
            put_histogram(out, metric);
        else
            put_cells(out, metric);
    }
}
