/*
 * Any text as a rule about a credential, as a secret for the environment, and any bytes as what was
 * compiled. What is a rule goes through the bytes and comes back the same; nothing that is one can
 * put a line into a request.
 */
#include "policy/inject.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool good)
{
    if (!good)
        abort();
}

static bool one_line(struct str text)
{
    for (size_t i = 0; i < text.n; i++)
        if (text.p[i] < ' ' || text.p[i] > '~')
            return false;
    return true;
}

static void try_rule(struct str text)
{
    static const struct str context = STR_INIT("t\0NAME\0a.example");
    static const struct str held =
        STR_INIT(INJECT_PLACEHOLDER_PREFIX "0123456789abcdef0123456789abc");
    static struct inject_set set;
    struct inject_rule rule;
    autobuf struct buf bytes = { 0 };

    if (inject_rule_parse(text, &rule, NULL) < 0)
        return;
    must(one_line(rule.match) && one_line(rule.header) && one_line(rule.value));
    must(!rule.header.n || !memchr(rule.header.p, ':', rule.header.n));
    struct inject_secret secret = { inject_named(&rule), context, held, STR_INIT("sealed") };
    must(secret.name.n > 0);
    must(inject_compile(&rule, 1, &secret, 1, &bytes, NULL) == 0);
    must(inject_parse(buf_view(&bytes), &set, NULL) == 0 && set.rule_count == 1);
    must(str_eq(set.rules[0].match, rule.match) && str_eq(set.rules[0].header, rule.header) &&
         str_eq(set.rules[0].value, rule.value));
    struct str opened = inject_opened(rule.match);
    must(opened.n <= rule.match.n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct inject_set set;
    struct str all = { (const char *)data, size }, variable, name;

    try_rule(all);
    if (inject_wish_parse(all, &variable, &name, NULL) == 0)
        must(variable.n && name.n && !memchr(variable.p, '=', variable.n));
    (void)inject_opened(all);
    if (inject_parse(all, &set, NULL) == 0)
        must(set.rule_count <= INJECT_RULES_MAX && set.secret_count <= INJECT_SECRETS_MAX);
    return 0;
}
