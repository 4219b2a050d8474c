/* metric: the page is exact Prometheus text, and threads lose no count. */
#include "base/metric.h"

#include <pthread.h>

#include "base/mem.h"
#include "base/test.h"

METRIC_COUNTER(plain, "t_b_total", "Plain \\ and\nsplit")
METRIC_COUNTER(labelled, "t_a_total", "Labelled", "kind", "x", "a\"b\\c")
METRIC_GAUGE(level, "t_c", "Level")
METRIC_HISTOGRAM(took, "t_d_seconds", "Duration", 0.001, 0.5, 10)
/* clang-format off */
METRIC_COUNTER(widest, "t_e_total", "All labels", "n", "0", "1", "2", "3", "4", "5", "6", "7", "8",
               "9", "10", "11", "12", "13", "14", "15")
/* clang-format on */

static const char *page(struct buf *out)
{
    buf_clear(out);
    metric_text(out);
    return buf_cstr(out);
}

TEST(the_page_is_sorted_escaped_and_exact)
{
    autobuf struct buf out = { 0 };

    metric_add(&plain, 0, 3);
    metric_add(&labelled, 1, 5);
    metric_set(&level, 0, -7);
    metric_observe_us(&took, 1000);     /* on the bound: inside */
    metric_observe_us(&took, 1001);     /* just past it */
    metric_observe_us(&took, 60000000); /* beyond all */
    metric_observe_us(&took, -5);       /* a clock that went back counts as none */
    metric_add(&widest, METRIC_LABELS_MAX - 1, 1);
    const char *want = "# HELP t_a_total Labelled\n"
                       "# TYPE t_a_total counter\n"
                       "t_a_total{kind=\"x\"} 0\n"
                       "t_a_total{kind=\"a\\\"b\\\\c\"} 5\n"
                       "# HELP t_b_total Plain \\\\ and\\nsplit\n"
                       "# TYPE t_b_total counter\n"
                       "t_b_total 3\n"
                       "# HELP t_c Level\n"
                       "# TYPE t_c gauge\n"
                       "t_c -7\n"
                       "# HELP t_d_seconds Duration\n"
                       "# TYPE t_d_seconds histogram\n"
                       "t_d_seconds_bucket{le=\"0.001\"} 2\n"
                       "t_d_seconds_bucket{le=\"0.5\"} 3\n"
                       "t_d_seconds_bucket{le=\"10\"} 3\n"
                       "t_d_seconds_bucket{le=\"+Inf\"} 4\n"
                       "t_d_seconds_sum 60.002001\n"
                       "t_d_seconds_count 4\n"
                       "# HELP t_e_total All labels\n"
                       "# TYPE t_e_total counter\n";
    const char *got = strstr(page(&out), "# HELP t_a_total");
    CHECK(got && strncmp(got, want, strlen(want)) == 0);
    CHECK(strstr(got, "t_e_total{n=\"14\"} 0\nt_e_total{n=\"15\"} 1\n"));
    metric_set(&level, 0, 2);
    CHECK(strstr(page(&out), "\nt_c 2\n"));
}

static void *count_much(void *arg)
{
    (void)arg;
    for (int i = 0; i < 20000; i++)
        metric_add(&labelled, 0, 1);
    return NULL;
}

TEST(threads_lose_no_count)
{
    pthread_t threads[4];

    for (size_t i = 0; i < ARRAY_LEN(threads); i++)
        CHECK(pthread_create(&threads[i], NULL, count_much, NULL) == 0);
    for (size_t i = 0; i < ARRAY_LEN(threads); i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK_INT(atomic_load(&labelled.cells[0]), 80000);
}
