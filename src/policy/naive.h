/*
 * naive - what a policy means, written a second time and as plainly as possible, for tests: every
 * rule is a text that is taken apart anew for each question, and all of them are looked at. It
 * shares no code with the real thing but the sizes of its types; texts are those that rule_parse
 * has accepted.
 */
#pragma once

#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "policy/policy.h"

#define NAIVE_RULES_MAX 4096

struct naive_rule {
    char text[RULE_TEXT_MAX + 1];
    char list; /* 'a', 'd', 'i', 'u' */
    int level;
};

struct naive {
    struct naive_rule rules[NAIVE_RULES_MAX];
    int count;
    char mode; /* 'd', 'a', 'o' */
};

struct naive_answer {
    char verdict; /* 'd', 'a', '?' */
    int index;    /* of the rule, or -1 */
    bool intercept, unchecked;
};

/* Takes "/raw" off the end of a port. */
static inline bool naive_raw(char *target)
{
    size_t n = strlen(target);

    if (n < 4 || strcmp(target + n - 4, "/raw") != 0)
        return false;
    target[n - 4] = 0;
    return true;
}

struct naive_question {
    char host[256]; /* lower case, no brackets */
    bool is_addr;
    int port;
    char view; /* 'o'paque, 'p'eek, 'r'equest */
    const char *method;
    const char *path;
};

/* Decodes into `out`; 1 fine, 0 odd. */
static inline int naive_path(const char *path, char *out)
{
    char part[RULE_TEXT_MAX * 8];
    size_t n = 0, k = 0;

    if (*path != '/')
        return 0;
    for (const char *p = path; *p && *p != '?'; p++) {
        unsigned value = (unsigned char)*p;

        if (value <= 32 || value >= 127 || value == '\\' || value == '#')
            return 0;
        if (value == '%') {
            if (!p[1] || !p[2] || !isxdigit((unsigned char)p[1]) || !isxdigit((unsigned char)p[2]))
                return 0;
            sscanf(p + 1, "%2x", &value);
            if (value < 32 || value == 127 || value == '.' || value == '/' || value == '\\' ||
                value == '%')
                return 0;
            p += 2;
        }
        out[n++] = (char)value;
    }
    out[n] = 0;
    /* segments of the undecoded path: escapes cannot make a dot */
    for (const char *p = path + 1;; p++) {
        if (*p && *p != '?' && *p != '/') {
            part[k++] = *p;
            continue;
        }
        part[k] = 0;
        if (strchr(part, ';'))
            *strchr(part, ';') = 0;
        bool last = *p != '/';
        if ((k == 0 && !last) || (k > 0 && part[0] == 0) || !strcmp(part, ".") ||
            !strcmp(part, ".."))
            return 0;
        k = 0;
        if (last)
            return 1;
    }
}

/* 'i'n, 'o'ut, or odd '?'. */
static inline char naive_under(const char *prefix, const char *path)
{
    static char want[RULE_TEXT_MAX * 8], have[RULE_TEXT_MAX * 8];

    if (!naive_path(path, have))
        return '?';
    naive_path(prefix, want);
    size_t n = strlen(want);
    if (strncmp(want, have, n) != 0)
        return 'o';
    return want[n - 1] == '/' || have[n] == 0 || have[n] == '/' ? 'i' : 'o';
}

static inline bool naive_bits(const char *host, const char *base, int bits)
{
    unsigned char a[16] = { 0 }, b[16] = { 0 };
    int family = strchr(base, ':') ? AF_INET6 : AF_INET;

    if ((strchr(host, ':') ? AF_INET6 : AF_INET) != family)
        return false;
    inet_pton(family, host, a);
    inet_pton(family, base, b);
    for (int i = 0; i < bits; i++)
        if ((a[i / 8] >> (7 - i % 8) & 1) != (b[i / 8] >> (7 - i % 8) & 1))
            return false;
    return true;
}

/* How particular is this pattern about that host? -1: it is not about it. */
static inline int naive_rank(const char *pattern, const struct naive_question *q)
{
    char base[RULE_TEXT_MAX + 1];
    int bits = strchr(pattern, ':') ? 128 : 32;

    snprintf(base, sizeof(base), "%s", pattern);
    if (strchr(base, '/')) {
        sscanf(strchr(base, '/') + 1, "%d", &bits);
        *strchr(base, '/') = 0;
    }
    if (strchr(base, ':') || isdigit((unsigned char)pattern[strlen(pattern) - 1])) {
        unsigned char ignored[16];

        if (inet_pton(strchr(base, ':') ? AF_INET6 : AF_INET, base, ignored) == 1)
            return q->is_addr && naive_bits(q->host, base, bits) ? bits : -1;
    }
    if (q->is_addr)
        return -1;
    if (pattern[0] != '*' && pattern[0] != '.')
        return strcmp(pattern, q->host) == 0 ? 100000 : -1;
    const char *dotted = pattern[0] == '*' ? pattern + 1 : pattern;
    size_t n = strlen(q->host), k = strlen(dotted);
    if (pattern[0] == '.' && strcmp(pattern + 1, q->host) == 0)
        return 99999;
    return n > k && strcmp(q->host + n - k, dotted) == 0 ? (int)k : -1;
}

/* Takes "[x]:p", "x:p", "x" apart: the pattern, and the port as text ("" when unsaid). */
static inline void naive_cut(char *target, char **pattern, const char **port)
{
    char *close = strchr(target, ']'), *colon = strrchr(target, ':');

    *port = "";
    *pattern = target;
    if (close) {
        *pattern = target + 1;
        if (close[1] == ':')
            *port = close + 2;
        *close = 0;
    } else if (colon && strchr(target, ':') == colon) {
        *port = colon + 1;
        *colon = 0;
    }
}

static inline bool naive_port(const char *port, char list, int asked)
{
    if (!strcmp(port, "*") || (!*port && list == 'd'))
        return true;
    if (!*port)
        return asked == 443 || (asked == 80 && list != 'u');
    int number = 0;
    sscanf(port, "%d", &number);
    return number == asked;
}

static inline bool naive_method(const char *methods, const char *method)
{
    char have[RULE_TEXT_MAX + 3], want[RULE_TEXT_MAX + 3];

    if (!*methods || !strcmp(methods, "*"))
        return true;
    snprintf(have, sizeof(have), ",%s,", methods);
    snprintf(want, sizeof(want), ",%s,", method);
    return strstr(have, want) != NULL;
}

static inline bool naive_applies(const struct naive_rule *rule, const struct naive_question *q,
                                 int *rank)
{
    char target[RULE_TEXT_MAX + 1] = "", methods[300] = "", path[RULE_TEXT_MAX + 1] = "", *pattern;
    const char *port;

    sscanf(rule->text, "%640s %299s %640s", target, methods, path);
    for (char *p = target; *p; p++)
        *p = (char)tolower((unsigned char)*p);
    naive_raw(target);
    naive_cut(target, &pattern, &port);
    size_t n = strlen(pattern);
    if (n && pattern[n - 1] == '.')
        pattern[n - 1] = 0;
    *rank = naive_rank(pattern, q);
    if (*rank < 0 || !naive_port(port, rule->list, q->port))
        return false;
    bool narrow = (*methods && strcmp(methods, "*") != 0) || *path;
    if (!narrow)
        return true;
    if (q->view == 'o')
        return rule->list == 'd';
    if (q->view == 'p')
        return rule->list == 'a';
    if (!naive_method(methods, q->method))
        return false;
    char under = *path ? naive_under(path, q->path) : 'i';
    return rule->list == 'd' ? under != 'o' : under == 'i';
}

/* Without classes of addresses: the caller leaves those out. */
static inline struct naive_answer naive_decide(const struct naive *n,
                                               const struct naive_question *q)
{
    struct naive_answer answer = { .index = -1 };
    int allow = -1, deny = -1, allow_rank = -1, deny_rank = -1, rank;

    for (int i = 0; i < n->count; i++) {
        if (!naive_applies(&n->rules[i], q, &rank))
            continue;
        if (n->rules[i].list == 'i')
            answer.intercept = true;
        char target[RULE_TEXT_MAX + 1] = "";
        sscanf(n->rules[i].text, "%640s", target);
        if (n->rules[i].list == 'u' || naive_raw(target))
            answer.unchecked = true;
        if (n->rules[i].list == 'a' && rank > allow_rank)
            allow = i, allow_rank = rank;
        if (n->rules[i].list == 'd' && rank > deny_rank)
            deny = i, deny_rank = rank;
    }
    if (deny >= 0)
        answer.verdict = 'd', answer.index = deny;
    else if (allow >= 0)
        answer.verdict = 'a', answer.index = allow;
    else
        answer.verdict = n->mode == 'o' ? 'a' : n->mode == 'a' ? '?' : 'd';
    return answer;
}
