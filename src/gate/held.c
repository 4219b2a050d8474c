/*
 * Secrets that go into requests, and the rules that say where. Rows are the vault's (auth/vault.h):
 * here they are only read, sealed as they are, and handed on to the egress process with the rules
 * of each sandbox (policy/inject.h). A rule whose secret is not there is left out and shown so; it
 * counts again as soon as somebody sets the secret.
 */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "gate/own.h"

/* ---- secrets ---- */

static struct held *find(const struct gate *gate, const char *tenant, struct str name)
{
    list_each (pos, &gate->held) {
        struct held *one = list_entry(pos, struct held, node);

        if (strcmp(one->tenant, tenant) == 0 && str_eq(name, str_of(one->name)))
            return one;
    }
    return NULL;
}

bool gate_secret_known(const struct gate *gate, const char *tenant, struct str name)
{
    return find(gate, tenant, name) != NULL;
}

static void held_free(struct held *one)
{
    list_remove(&one->node);
    buf_free(&one->context);
    buf_free(&one->sealed);
    free(one);
}

static void put(struct gate *gate, const struct gate_secret *secret)
{
    struct held *old = find(gate, secret->tenant, str_of(secret->name));

    if (secret->sealed.n) {
        struct held *one = xnew(struct held);

        snprintf(one->tenant, sizeof(one->tenant), "%s", secret->tenant);
        snprintf(one->name, sizeof(one->name), "%s", secret->name);
        snprintf(one->placeholder, sizeof(one->placeholder), "%s", secret->placeholder);
        buf_append(&one->context, secret->tenant, strlen(secret->tenant) + 1);
        buf_append(&one->context, secret->name, strlen(secret->name) + 1);
        one->hosts_at = one->context.len;
        buf_puts(&one->context, secret->hosts);
        buf_str(&one->sealed, secret->sealed);
        list_append(&gate->held, &one->node);
    }
    if (old)
        held_free(old);
}

void gate_secret_set(struct gate *gate, const struct gate_secret *secret)
{
    put(gate, secret);
    gate_changed(gate, LEVEL_TENANT, secret->tenant, "");
}

int held_load(struct gate *gate, struct db *db, struct err *err)
{
    autoquery struct query *q =
        db_query(db, "SELECT tenant, name, hosts, placeholder, sealed FROM secret"
                     " WHERE kind = 'value' AND use = 'request' ORDER BY tenant, name");
    int rc;

    while ((rc = query_step(q, err)) > 0) {
        autoarena struct arena arena = { 0 };
        struct gate_secret one = { .tenant = query_col_dup(q, 0, &arena),
                                   .name = query_col_dup(q, 1, &arena),
                                   .hosts = query_col_dup(q, 2, &arena),
                                   .placeholder = query_col_dup(q, 3, &arena),
                                   .sealed = query_col_str(q, 4) };

        put(gate, &one);
    }
    return rc;
}

void held_free_all(struct gate *gate)
{
    while (!list_empty(&gate->held))
        held_free(list_entry(gate->held.next, struct held, node));
}

/* ---- what counts for a sandbox ---- */

/* The rest of the context: hosts with a newline between two. */
static struct str hosts_of(const struct held *one)
{
    return str_from(buf_view(&one->context), one->hosts_at);
}

/* Rules of one sandbox while they are gathered; texts are the layers' and the secrets' own. */
struct gather {
    struct inject_rule rules[INJECT_RULES_MAX];
    struct inject_secret secrets[INJECT_SECRETS_MAX];
    size_t rule_count, secret_count;
    bool over; /* more than that */
    struct arena arena;
};

static void name_secret(struct gather *g, const struct held *one)
{
    for (size_t i = 0; i < g->secret_count; i++)
        if (str_eq(g->secrets[i].name, str_of(one->name)))
            return;
    if (g->secret_count == INJECT_SECRETS_MAX) {
        g->over = true;
        return;
    }
    g->secrets[g->secret_count++] = (struct inject_secret){ .name = str_of(one->name),
                                                            .context = buf_view(&one->context),
                                                            .placeholder = str_of(one->placeholder),
                                                            .sealed = buf_view(&one->sealed) };
}

static void add_rule(struct gather *g, const struct held *one, const struct inject_rule *rule)
{
    if (g->rule_count == INJECT_RULES_MAX) {
        g->over = true;
        return;
    }
    g->rules[g->rule_count++] = *rule;
    name_secret(g, one);
}

/* Its placeholder is replaced wherever the secret may go. */
static void add_hosts(struct gather *g, const struct held *one)
{
    struct str hosts = hosts_of(one);
    const char *value = arena_printf(&g->arena, "{secret:%s}", one->name);

    while (hosts.n)
        add_rule(g, one,
                 &(struct inject_rule){ .match = str_cut(&hosts, '\n'), .value = str_of(value) });
}

static void add_layer(struct gather *g, const struct gate *gate, const char *tenant,
                      const struct egress_spec *spec)
{
    struct str variable, name;
    struct inject_rule rule;
    struct held *one;

    for (size_t i = 0; spec->inject && spec->inject[i]; i++)
        if (inject_rule_parse(str_of(spec->inject[i]), &rule, NULL) == 0 &&
            (one = find(gate, tenant, inject_named(&rule))))
            add_rule(g, one, &rule);
    for (size_t i = 0; spec->secrets && spec->secrets[i]; i++)
        if (inject_wish_parse(str_of(spec->secrets[i]), &variable, &name, NULL) == 0 &&
            (one = find(gate, tenant, name)))
            add_hosts(g, one);
}

int held_compile(const struct gate *gate, const char *tenant, const struct egress_spec *own,
                 struct buf *out, struct err *err)
{
    autofree struct gather *g = xnew(struct gather);
    struct layer_ref layers[LEVELS];
    size_t count = layers_of(gate, tenant, own, layers);
    int rc = 0;

    /* The innermost first: of two rules for one header the first counts. */
    for (size_t i = count; i-- > 0;)
        add_layer(g, gate, tenant, layers[i].spec);
    if (g->over)
        rc = err_set(err, ERR_LIMIT, "all layers together have more than %d rules about %d secrets",
                     INJECT_RULES_MAX, INJECT_SECRETS_MAX);
    else if (g->rule_count)
        rc = inject_compile(g->rules, g->rule_count, g->secrets, g->secret_count, out, err);
    arena_free(&g->arena);
    return rc;
}

/* ---- whose TLS is opened ---- */

static void open_one(struct arena *arena, struct str match, const char **list, size_t *count)
{
    struct str host = inject_opened(match);

    for (size_t i = 0; i < *count; i++)
        if (str_is(host, list[i]))
            return;
    if (host.n && *count < EGRESS_RULES_MAX)
        list[(*count)++] = arena_memdup0(arena, host.p, host.n);
}

const char **held_opened(const struct gate *gate, const char *tenant,
                         const struct egress_spec *spec, struct arena *arena)
{
    struct inject_rule rule;
    struct str variable, name;
    size_t count = 0;

    if (!spec->inject && !spec->secrets)
        return spec->intercept;
    const char **list = arena_alloc(arena, (EGRESS_RULES_MAX + 1) * sizeof(*list));

    for (; spec->intercept && spec->intercept[count] && count < EGRESS_RULES_MAX; count++)
        list[count] = spec->intercept[count];
    for (size_t i = 0; spec->inject && spec->inject[i]; i++)
        if (inject_rule_parse(str_of(spec->inject[i]), &rule, NULL) == 0 &&
            find(gate, tenant, inject_named(&rule)))
            open_one(arena, rule.match, list, &count);
    for (size_t i = 0; spec->secrets && spec->secrets[i]; i++) {
        struct held *one = NULL;

        if (inject_wish_parse(str_of(spec->secrets[i]), &variable, &name, NULL) == 0)
            one = find(gate, tenant, name);
        for (struct str hosts = one ? hosts_of(one) : STR_NONE; hosts.n;)
            open_one(arena, str_cut(&hosts, '\n'), list, &count);
    }
    list[count] = NULL;
    return list;
}

/* ---- in the environment ---- */

size_t held_env(const struct gate *gate, const char *tenant, const struct egress_spec *own,
                struct field_pair *out, size_t max, struct arena *arena)
{
    struct layer_ref layers[LEVELS];
    size_t count = layers_of(gate, tenant, own, layers), used = 0;
    struct str variable, name;

    for (size_t i = 0; i < count; i++)
        for (const char **wish = layers[i].spec->secrets; wish && *wish && used < max; wish++) {
            struct held *one = NULL;

            if (inject_wish_parse(str_of(*wish), &variable, &name, NULL) == 0)
                one = find(gate, tenant, name);
            if (one)
                out[used++] = (struct field_pair){ arena_memdup0(arena, variable.p, variable.n),
                                                   arena_strdup(arena, one->placeholder) };
        }
    return used;
}
