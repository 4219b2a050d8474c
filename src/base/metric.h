/*
 * metric - counters, gauges and histograms in Prometheus text.
 *
 * A metric is a static object that registers itself; labelled ones list their label values up
 * front, so a peer can never make a new time series. Any thread (relaxed atomics).
 *
 *     METRIC_COUNTER(requests, "atoll_http_requests_total", "Requests", "status", "2xx", "4xx")
 *     metric_add(&requests, 0, 1);    the index of the label value; 0 without labels
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "base/buf.h"

enum metric_type { METRIC_COUNTER_TYPE, METRIC_GAUGE_TYPE, METRIC_HISTOGRAM_TYPE };

#define METRIC_LABELS_MAX 16
#define METRIC_BUCKETS_MAX 16

struct metric {
    const char *name, *help;
    enum metric_type type;
    const char *label;                         /* NULL without labels */
    const char *values[METRIC_LABELS_MAX + 1]; /* label values, NULL-terminated */
    double bounds[METRIC_BUCKETS_MAX + 1];     /* upper bounds in seconds, 0-terminated */
    _Atomic int64_t cells[METRIC_LABELS_MAX];  /* counter or gauge, by label index */
    _Atomic uint64_t buckets[METRIC_BUCKETS_MAX + 1];
    _Atomic uint64_t sum_us;
    struct metric *next;
};

void metric_register(struct metric *metric);
void metric_add(struct metric *metric, unsigned index, int64_t by);
void metric_set(struct metric *metric, unsigned index, int64_t value);
void metric_observe_us(struct metric *metric, int64_t us);
/* Everything registered, in Prometheus text format 0.0.4. */
void metric_text(struct buf *out);

#define METRIC_REGISTER_(var)                                                                      \
    __attribute__((constructor)) static void var##_register_(void)                                 \
    {                                                                                              \
        metric_register(&var);                                                                     \
    }
#define METRIC_COUNTER(var, name_, help_, ...)                                                     \
    static struct metric var = {                                                                   \
        .name = name_, .help = help_, .type = METRIC_COUNTER_TYPE, METRIC_LABELS_(__VA_ARGS__)     \
    };                                                                                             \
    METRIC_REGISTER_(var)
#define METRIC_GAUGE(var, name_, help_, ...)                                                       \
    static struct metric var = {                                                                   \
        .name = name_, .help = help_, .type = METRIC_GAUGE_TYPE, METRIC_LABELS_(__VA_ARGS__)       \
    };                                                                                             \
    METRIC_REGISTER_(var)
#ifdef ATOLL_CPPCHECK /* which does not know __VA_OPT__ */
#define METRIC_LABELS_(...) .label = NULL
#else
#define METRIC_LABELS_(...) __VA_OPT__(METRIC_LABELS2_(__VA_ARGS__))
#endif
#define METRIC_LABELS2_(label_, ...) .label = label_, .values = { __VA_ARGS__ }
#define METRIC_HISTOGRAM(var, name_, help_, ...)                                                   \
    static struct metric var = {                                                                   \
        .name = name_, .help = help_, .type = METRIC_HISTOGRAM_TYPE, .bounds = { __VA_ARGS__ }     \
    };                                                                                             \
    METRIC_REGISTER_(var)
