/*
 * Layers to bytes. Rules are written in the order of layers, and within a layer denies, allows,
 * packs, marks; that order is also what decides which of two equal rules is named as the reason. A
 * pack that an outer layer brought already is left out.
 */
#include "base/mem.h"
#include "policy/own.h"
#include "policy/pack.h"

struct compiler {
    struct policy_head head;
    struct buf rules, texts;
    const char *packs[LEVELS * EGRESS_PACKS_MAX]; /* those that are in already */
    size_t pack_count;
    uint32_t pack_at; /* the name of the pack whose rules are being written; empty: none */
    uint8_t pack_len;
    bool locked; /* by a layer that is done */
};

static void compiler_free(struct compiler *c)
{
    buf_free(&c->rules);
    buf_free(&c->texts);
}

/* The text of a rule holds its name near the beginning and its path at the end. */
static void put_texts(struct compiler *c, const struct rule *rule, struct str name,
                      struct policy_record *record)
{
    static const uint8_t before[RULE_KINDS] = { [RULE_SUFFIX] = 2, [RULE_TREE] = 1 };

    record->text_at = (uint32_t)c->texts.len;
    rule_text(rule, &c->texts);
    record->text_len = (uint16_t)(c->texts.len - record->text_at);
    record->name_at = record->text_at + before[rule->kind];
    record->name_len = (uint16_t)name.n;
    record->path_at = record->text_at + record->text_len - (uint32_t)rule->path.n;
    record->path_len = (uint16_t)rule->path.n;
}

static uint32_t hash_name(struct str name, enum rule_kind kind)
{
    uint32_t hash = POLICY_HASH_START;

    for (size_t i = name.n; i-- > 0;)
        hash = policy_hash_step(hash, (unsigned char)name.p[i]);
    return policy_hash_end(hash, kind);
}

static enum policy_ports ports_of(const struct rule *rule, enum policy_list list)
{
    if (rule->ports == RULE_PORTS_ONE)
        return rule->raw ? PORTS_ONE_RAW : PORTS_ONE;
    if (list == LIST_UNCHECKED && rule->ports == RULE_PORTS_UNSAID)
        return PORTS_ONE;
    if (rule->ports == RULE_PORTS_ANY || list == LIST_DENY)
        return rule->raw ? PORTS_ANY_RAW : PORTS_ANY;
    return PORTS_WEB;
}

static void put_addr(struct compiler *c, const struct rule *rule, struct policy_record *record)
{
    const struct addr *addr = &rule->host.addr;

    record->prefix = rule->prefix;
    record->family = addr->family;
    memcpy(record->addr, addr->bytes, sizeof(record->addr));
    record->hash = policy_hash_addr(addr, rule->prefix);
    if (addr->family == 4)
        c->head.prefixes4 |= 1ull << rule->prefix;
    else
        c->head.prefixes6[rule->prefix / 64] |= 1ull << rule->prefix % 64;
}

static int put_rule(struct compiler *c, const struct rule *rule, enum policy_list list,
                    enum policy_level level, struct err *err)
{
    struct policy_record record = { .kind = (uint8_t)rule->kind,
                                    .list = (uint8_t)list,
                                    .level = (uint8_t)level,
                                    .port = rule->port,
                                    .methods = rule->methods,
                                    .ports = (uint8_t)ports_of(rule, list) };
    struct str name = rule->kind == RULE_ADDR ? STR_NONE : host_str(&rule->host);

    if (record.ports == PORTS_ONE && rule->ports == RULE_PORTS_UNSAID)
        record.port = 443;
    if (c->head.rule_count >= POLICY_RULES_MAX)
        return err_set(err, ERR_LIMIT, "all layers and packs together are more than %d rules",
                       POLICY_RULES_MAX);
    if (list >= LIST_INTERCEPT && (rule->methods || rule->path.n || rule->kind == RULE_ADDR))
        return err_set(err, ERR_INVALID, "here a rule is a name, and perhaps a port");
    if (rule->raw && list != LIST_ALLOW)
        return err_set(err, ERR_INVALID, "\"" RULE_RAW "\" belongs to rules of allow");
    if (rule->kind == RULE_ADDR)
        put_addr(c, rule, &record);
    else
        record.hash = hash_name(name, rule->kind);
    put_texts(c, rule, name, &record);
    record.pack_at = c->pack_at;
    record.pack_len = c->pack_len;
    buf_append(&c->rules, &record, sizeof(record));
    c->head.rule_count++;
    return 0;
}

static int put_list(struct compiler *c, const char *const *texts, enum policy_list list,
                    enum policy_level level, struct err *err)
{
    static const char *const names[LISTS] = { "allow", "deny", "intercept", "unchecked" };
    struct rule rule;

    for (size_t i = 0; texts && texts[i]; i++) {
        if (i >= EGRESS_RULES_MAX)
            return err_set(err, ERR_LIMIT, "%s has more than %d rules", names[list],
                           EGRESS_RULES_MAX);
        if (rule_parse(str_of(texts[i]), &rule, err) < 0 ||
            put_rule(c, &rule, list, level, err) < 0)
            return err_wrap(err, "%s[%zu]", names[list], i);
    }
    return 0;
}

static bool have_pack(const struct compiler *c, const char *name)
{
    for (size_t i = 0; i < c->pack_count; i++)
        if (strcmp(c->packs[i], name) == 0)
            return true;
    return false;
}

static int put_packs(struct compiler *c, const struct policy_layer *layer, enum policy_level level,
                     struct err *err)
{
    if (layer->pack_count > EGRESS_PACKS_MAX)
        return err_set(err, ERR_LIMIT, "more than %d packs", EGRESS_PACKS_MAX);
    for (size_t i = 0; i < layer->pack_count; i++) {
        const struct policy_pack *pack = &layer->packs[i];

        if (!pack_name_ok(str_of(pack->name)))
            return err_set(err, ERR_INVALID, "packs[%zu] is not the name of a pack", i);
        if (have_pack(c, pack->name))
            continue;
        c->packs[c->pack_count++] = pack->name;
        c->pack_at = (uint32_t)c->texts.len;
        c->pack_len = (uint8_t)strlen(pack->name);
        buf_puts(&c->texts, pack->name);
        if (put_list(c, pack->rules, LIST_ALLOW, level, err) < 0)
            return err_wrap(err, "pack %s", pack->name);
    }
    c->pack_at = c->pack_len = 0;
    return 0;
}

static void put_mode(struct compiler *c, const struct policy_layer *layer, enum policy_level level)
{
    if (layer->mode == POLICY_MODE_UNSAID)
        return;
    c->head.mode = (uint8_t)layer->mode;
    c->head.mode_level = (uint8_t)level;
    c->head.mode_said = 1;
}

/* 0 is no limit. */
static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a == 0 || (b != 0 && b < a) ? b : a;
}

static int put_layer(struct compiler *c, const struct policy_layer *layer, enum policy_level level,
                     struct err *err)
{
    c->head.max_bytes = smaller(c->head.max_bytes, layer->max_bytes);
    c->head.max_connections = (uint32_t)smaller(c->head.max_connections, layer->max_connections);
    if (layer->ask_s > EGRESS_ASK_MAX_S)
        return err_set(err, ERR_LIMIT, "ask_s is at most %d", EGRESS_ASK_MAX_S);
    if (layer->ask_s)
        c->head.ask_s = layer->ask_s;
    if (put_list(c, layer->deny, LIST_DENY, level, err) < 0)
        return -1;
    if (c->locked)
        return 0;
    put_mode(c, layer, level);
    c->locked = layer->locked;
    if (put_list(c, layer->allow, LIST_ALLOW, level, err) < 0 ||
        put_packs(c, layer, level, err) < 0 ||
        put_list(c, layer->intercept, LIST_INTERCEPT, level, err) < 0)
        return -1;
    return put_list(c, layer->unchecked, LIST_UNCHECKED, level, err);
}

/* Chains from each bucket to its newest rule and on to older ones. */
static uint32_t *chain(struct compiler *c)
{
    uint32_t count = 1;

    while (count < c->head.rule_count)
        count *= 2;
    uint32_t *buckets = xcalloc(count, sizeof(*buckets));
    for (uint32_t i = 0; i < c->head.rule_count; i++) {
        char *at = c->rules.data + (size_t)i * sizeof(struct policy_record);
        struct policy_record record;

        memcpy(&record, at, sizeof(record));
        uint32_t *bucket = &buckets[record.hash & (count - 1)];
        record.next = *bucket;
        *bucket = i + 1;
        memcpy(at, &record, sizeof(record));
    }
    c->head.bucket_count = count;
    return buckets;
}

int policy_compile(const struct policy_layer layers[LEVELS], uint64_t version, struct buf *out,
                   struct err *err)
{
    auto_with(compiler_free) struct compiler c = {
        .head = { .magic = POLICY_MAGIC,
                  .format = POLICY_FORMAT,
                  .mode = POLICY_MODE_DENY,
                  .version = version },
        .rules.max = POLICY_BYTES_MAX,
        .texts.max = POLICY_BYTES_MAX,
    };

    for (int level = 0; level < LEVELS; level++)
        if (layers[level].present &&
            put_layer(&c, &layers[level], (enum policy_level)level, err) < 0)
            return err_wrap(err, "%s", policy_level_name((enum policy_level)level));
    if (c.head.ask_s == 0)
        c.head.ask_s = EGRESS_ASK_S;
    c.head.texts_len = (uint32_t)c.texts.len;
    if (!buf_ok(&c.rules) || !buf_ok(&c.texts))
        return err_set(err, ERR_LIMIT, "all layers together are more than %d bytes",
                       POLICY_BYTES_MAX);
    autofree uint32_t *buckets = chain(&c);
    size_t total =
        sizeof(c.head) + c.rules.len + c.head.bucket_count * sizeof(*buckets) + c.texts.len;
    if (total > POLICY_BYTES_MAX)
        return err_set(err, ERR_LIMIT, "all layers together are more than %d bytes",
                       POLICY_BYTES_MAX);
    buf_append(out, &c.head, sizeof(c.head));
    buf_str(out, buf_view(&c.rules));
    buf_append(out, buckets, c.head.bucket_count * sizeof(*buckets));
    buf_str(out, buf_view(&c.texts));
    return buf_ok(out) ? 0 : err_set(err, ERR_LIMIT, "a compiled policy does not fit");
}
