/*
 * A decision. The name is walked once from its end; at each dot the table is asked for what stands
 * behind a wildcard there, at the beginning for the name itself, so more particular rules are found
 * later and take the place of wider ones. Of equally particular ones the first written is named.
 * Addresses are asked for at each length of prefix that some rule has.
 */
#include <stdio.h>

#include "policy/own.h"

#define NONE UINT32_MAX

/* What was found on the way; indexes of rules or NONE. */
struct finding {
    const struct policy *policy;
    const struct policy_question *question;
    uint32_t allow, deny, near;
    enum policy_why deny_why, near_why;
    bool intercept, unchecked;
    /* of the pattern that is being looked at: a first hit replaces those of wider patterns */
    bool allowed_here, denied_here, near_here;
};

static bool port_fits(const struct policy_record *record, uint16_t port)
{
    switch ((enum policy_ports)record->ports) {
    case PORTS_ANY:
    case PORTS_ANY_RAW:
        return true;
    case PORTS_ONE:
    case PORTS_ONE_RAW:
        return record->port == port;
    case PORTS_WEB:
    case PORTS_KINDS:
        break;
    }
    return port == 80 || port == 443;
}

static void keep(uint32_t *slot, bool *here, uint32_t index)
{
    if (!*here || index < *slot)
        *slot = index;
    *here = true;
}

static void near_miss(struct finding *f, enum policy_why why, uint32_t index)
{
    if (!f->near_here || index < f->near)
        f->near_why = why;
    keep(&f->near, &f->near_here, index);
}

static bool request_fits(const struct finding *f, const struct policy_record *record, bool deny)
{
    struct str prefix = policy_text(f->policy, record->path_at, record->path_len);
    enum rule_path in = RULE_PATH_IN;

    if (record->methods && !(record->methods & f->question->method))
        return false;
    if (prefix.n)
        in = rule_path_match(prefix, f->question->path);
    return deny ? in != RULE_PATH_OUT : in == RULE_PATH_IN;
}

static void meet_deny(struct finding *f, const struct policy_record *record, uint32_t index)
{
    bool narrow = record->methods || record->path_len;
    bool unseen = narrow && f->question->view == POLICY_OPAQUE;

    if (narrow && f->question->view == POLICY_PEEK)
        return;
    if (narrow && !unseen && !request_fits(f, record, true))
        return;
    if (!f->denied_here || index < f->deny)
        f->deny_why = unseen ? WHY_UNSEEN : WHY_RULE;
    keep(&f->deny, &f->denied_here, index);
}

static void meet_allow(struct finding *f, const struct policy_record *record, uint32_t index)
{
    bool narrow = record->methods || record->path_len;

    if (record->ports == PORTS_ONE_RAW || record->ports == PORTS_ANY_RAW)
        f->unchecked = true;
    if (narrow && f->question->view == POLICY_OPAQUE)
        near_miss(f, WHY_UNSEEN, index);
    else if (narrow && f->question->view == POLICY_REQUEST && !request_fits(f, record, false))
        near_miss(f, WHY_REQUEST, index);
    else
        keep(&f->allow, &f->allowed_here, index);
}

static void meet(struct finding *f, const struct policy_record *record, uint32_t index)
{
    bool fits = port_fits(record, f->question->port);

    if (!fits && record->list == LIST_ALLOW)
        near_miss(f, WHY_PORT, index);
    if (!fits)
        return;
    switch ((enum policy_list)record->list) {
    case LIST_ALLOW:
        meet_allow(f, record, index);
        break;
    case LIST_DENY:
        meet_deny(f, record, index);
        break;
    case LIST_INTERCEPT:
        f->intercept = true;
        break;
    case LIST_UNCHECKED:
    case LISTS:
        f->unchecked = true;
        break;
    }
}

static uint32_t bucket_of(const struct policy *policy, uint32_t hash)
{
    uint32_t first;

    memcpy(&first, policy->buckets + (size_t)(hash & policy->bucket_mask) * sizeof(first),
           sizeof(first));
    return first;
}

/* `tree_only`: of what stands behind wildcards, those that mean the name itself too. */
static void look_name(struct finding *f, struct str name, uint32_t hash, enum rule_kind kind,
                      bool tree_only)
{
    struct policy_record record;

    for (uint32_t at = bucket_of(f->policy, hash); at; at = record.next) {
        record = policy_record(f->policy, at - 1);
        if (record.hash != hash || record.name_len != name.n || record.kind == RULE_ADDR ||
            (record.kind == RULE_HOST) != (kind == RULE_HOST) ||
            (tree_only && record.kind != RULE_TREE) ||
            !str_eq(policy_text(f->policy, record.name_at, record.name_len), name))
            continue;
        meet(f, &record, at - 1);
    }
}

static void look_addr(struct finding *f, const struct addr *addr, unsigned prefix)
{
    uint32_t hash = policy_hash_addr(addr, prefix);
    struct policy_record record;

    for (uint32_t at = bucket_of(f->policy, hash); at; at = record.next) {
        record = policy_record(f->policy, at - 1);
        struct addr base = { .family = record.family };

        memcpy(base.bytes, record.addr, sizeof(base.bytes));
        if (record.hash == hash && record.kind == RULE_ADDR && record.prefix == prefix &&
            addr_within(addr, &base, prefix))
            meet(f, &record, at - 1);
    }
}

static void next_pattern(struct finding *f)
{
    f->allowed_here = f->denied_here = f->near_here = false;
}

static void find_name(struct finding *f, struct str name)
{
    uint32_t hash = POLICY_HASH_START;

    for (size_t i = name.n; i-- > 0;) {
        if (name.p[i] == '.') {
            next_pattern(f);
            look_name(f, str_from(name, i + 1), policy_hash_end(hash, RULE_SUFFIX), RULE_SUFFIX,
                      false);
        }
        hash = policy_hash_step(hash, (unsigned char)name.p[i]);
    }
    next_pattern(f);
    look_name(f, name, policy_hash_end(hash, RULE_SUFFIX), RULE_SUFFIX, true);
    next_pattern(f);
    look_name(f, name, policy_hash_end(hash, RULE_HOST), RULE_HOST, false);
}

static bool has_prefix(const struct policy *policy, uint8_t family, unsigned bits)
{
    return family == 4 ? policy->prefixes4 >> bits & 1
                       : policy->prefixes6[bits / 64] >> bits % 64 & 1;
}

static void find_addr(struct finding *f, const struct addr *addr)
{
    unsigned most = addr->family == 4 ? 32 : 128;

    for (unsigned bits = 0; bits <= most; bits++) {
        if (!has_prefix(f->policy, addr->family, bits))
            continue;
        next_pattern(f);
        look_addr(f, addr, bits);
    }
}

static void name_rule(const struct policy *policy, uint32_t index, struct policy_answer *out)
{
    struct policy_rule rule = policy_rule_at(policy, index);

    out->has_rule = true;
    out->index = index;
    out->level = rule.level;
    out->rule = rule.text;
    out->pack = rule.pack;
}

static struct policy_answer by_rule(const struct finding *f, enum policy_verdict verdict,
                                    enum policy_why why, uint32_t index)
{
    struct policy_answer answer = { .verdict = verdict,
                                    .why = why,
                                    .level = f->policy->mode_level,
                                    .intercept = f->intercept,
                                    .unchecked = f->unchecked };

    if (index != NONE)
        name_rule(f->policy, index, &answer);
    return answer;
}

/* No rule allows it and none denies it. */
static struct policy_answer by_mode(const struct finding *f)
{
    enum policy_why why = f->near != NONE ? f->near_why : WHY_NO_RULE;

    switch (f->policy->mode) {
    case POLICY_MODE_OPEN:
        return by_rule(f, POLICY_ALLOW, WHY_OPEN, NONE);
    case POLICY_MODE_ASK:
        return by_rule(f, POLICY_ASK, why, f->near);
    case POLICY_MODE_UNSAID:
    case POLICY_MODE_DENY:
        break;
    }
    return by_rule(f, POLICY_DENY, why, f->near);
}

static struct policy_answer decide_name(struct finding *f)
{
    find_name(f, host_str(f->question->host));
    if (f->deny != NONE)
        return by_rule(f, POLICY_DENY, f->deny_why, f->deny);
    if (f->allow != NONE)
        return by_rule(f, POLICY_ALLOW, WHY_RULE, f->allow);
    return by_mode(f);
}

static struct policy_answer decide_addr(struct finding *f)
{
    const struct addr *addr = &f->question->host->addr;
    enum addr_class class = addr_class(addr);
    struct policy_answer answer;

    find_addr(f, addr);
    if (f->deny != NONE)
        answer = by_rule(f, POLICY_DENY, f->deny_why, f->deny);
    else if (addr_never(class))
        answer = by_rule(f, POLICY_DENY, WHY_CLASS, NONE);
    else if (f->allow != NONE)
        answer = by_rule(f, POLICY_ALLOW, WHY_RULE, f->allow);
    else if (class != ADDR_PUBLIC && f->near == NONE)
        answer = by_rule(f, POLICY_DENY, WHY_CLASS, NONE);
    else if (class != ADDR_PUBLIC)
        answer = by_rule(f, POLICY_DENY, f->near_why, f->near);
    else
        answer = by_mode(f);
    if (answer.why == WHY_NO_RULE)
        answer.why = WHY_ADDRESS;
    answer.class = class;
    return answer;
}

void policy_decide(const struct policy *policy, const struct policy_question *question,
                   struct policy_answer *out)
{
    struct finding f = {
        .policy = policy, .question = question, .allow = NONE, .deny = NONE, .near = NONE
    };

    if (question->host->kind == HOST_NAME)
        *out = decide_name(&f);
    else if (question->host->kind == HOST_ADDR)
        *out = decide_addr(&f);
    else
        *out = (struct policy_answer){ .verdict = POLICY_DENY, .why = WHY_NO_RULE };
}

void policy_addr(const struct policy *policy, const struct addr *addr, uint16_t port,
                 struct policy_answer *out)
{
    struct policy_question question = { .port = port, .view = POLICY_PEEK };
    struct finding f = {
        .policy = policy, .question = &question, .allow = NONE, .deny = NONE, .near = NONE
    };
    enum addr_class class = addr_class(addr);

    find_addr(&f, addr);
    if (f.deny != NONE)
        *out = by_rule(&f, POLICY_DENY, WHY_RULE, f.deny);
    else if (addr_never(class))
        *out = by_rule(&f, POLICY_DENY, WHY_CLASS, NONE);
    else if (f.allow != NONE)
        *out = by_rule(&f, POLICY_ALLOW, WHY_RULE, f.allow);
    else if (class == ADDR_PUBLIC)
        *out = by_rule(&f, POLICY_ALLOW, WHY_OPEN, NONE);
    else
        *out = by_rule(&f, POLICY_DENY, f.near != NONE ? f.near_why : WHY_CLASS, f.near);
    out->class = class;
}
