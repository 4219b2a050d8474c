/*
 * decide SECONDS - how many decisions per second a policy of 1,000 rules makes.
 *
 * The rules are of every kind, the questions half allowed and half not, and each begins with the
 * text of a host, as it comes in. Prints the rate. That half were allowed is checked: a policy that
 * says no at once would be fast too.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "policy/policy.h"

#define RULES EGRESS_RULES_MAX
#define QUESTIONS 512

static double now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void fail(const char *what)
{
    fprintf(stderr, "decide: %s\n", what);
    exit(1);
}

static const char *const kinds[] = { "host%d.example.org", "*.tree%d.example.net",
                                     ".both%d.example.com:8443", "service%d.example.org GET /v1/" };
/* Of the first two kinds, because a tunnel is asked about on port 443. */
static const char *const asked[] = { "host%d.example.org", "other%d.example.org",
                                     "a.b.c.tree%d.example.net", "tree%d.example.net" };
enum { KINDS = 4 };

static void compile(struct buf *out)
{
    static char texts[RULES][64];
    static const char *rules[RULES + 1];
    struct policy_layer layers[LEVELS] = { 0 };
    struct err err = { 0 };

    for (int i = 0; i < RULES; i++) {
        snprintf(texts[i], sizeof(texts[i]), kinds[i % KINDS], i / KINDS);
        rules[i] = texts[i];
    }
    layers[LEVEL_SANDBOX] = (struct policy_layer){ .present = true, .allow = rules };
    if (policy_compile(layers, 1, out, &err) < 0)
        fail(err.msg);
}

int main(int argc, char **argv)
{
    static char texts[QUESTIONS][64];
    struct buf bytes = { 0 };
    struct policy policy;
    struct err err = { 0 };
    unsigned long count = 0, allowed = 0;

    if (argc != 2) {
        fprintf(stderr, "usage: decide SECONDS\n");
        return 64;
    }
    compile(&bytes);
    if (policy_open(&policy, bytes.data, bytes.len, &err) < 0)
        fail(err.msg);
    if (policy.rule_count != RULES)
        fail("rules are missing");
    for (int i = 0; i < QUESTIONS; i++)
        snprintf(texts[i], sizeof(texts[i]), asked[i % KINDS], i % (RULES / KINDS));
    double start = now(), end = start + strtod(argv[1], NULL);
    while (now() < end) {
        for (int i = 0; i < QUESTIONS; i++) {
            struct host host;
            struct policy_answer answer;

            if (host_parse(str_of(texts[i]), &host, &err) < 0)
                fail(err.msg);
            policy_decide(&policy, &(struct policy_question){ .host = &host, .port = 443 },
                          &answer);
            allowed += answer.verdict == POLICY_ALLOW;
        }
        count += QUESTIONS;
    }
    if (allowed * 2 != count)
        fail("not half of them were allowed");
    printf("%.1f\n", (double)count / (now() - start));
    buf_free(&bytes);
    return 0;
}
