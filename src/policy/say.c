/* Words for decisions: for people, for logs, for the JSON of a denial. */
#include <stdio.h>

#include "policy/policy.h"

static const char *const modes[] = { NULL, "deny", "ask", "open" };
static const char *const levels[LEVELS] = { "node", "tenant", "project", "sandbox" };
static const char *const verdicts[] = { "deny", "allow", "ask" };
static const char *const whys[WHYS] = { "rule",   "no_rule", "open", "port", "request",
                                        "unseen", "address", "raw",  "class" };

const char *policy_mode_name(enum policy_mode mode)
{
    return modes[mode];
}

const char *policy_level_name(enum policy_level level)
{
    return levels[level];
}

const char *policy_verdict_name(enum policy_verdict verdict)
{
    return verdicts[verdict];
}

const char *policy_why_name(enum policy_why why)
{
    return whys[why];
}

bool policy_mode_from(struct str name, enum policy_mode *out)
{
    for (size_t i = 1; i < ARRAY_LEN(modes); i++) {
        if (!str_is(name, modes[i]))
            continue;
        *out = (enum policy_mode)i;
        return true;
    }
    return false;
}

/* "x.example (tenant, pack python)" */
static void say_rule(const struct policy_answer *answer, struct buf *out)
{
    buf_str(out, answer->rule);
    buf_puts(out, " (");
    buf_puts(out, levels[answer->level]);
    if (answer->pack.n) {
        buf_puts(out, ", pack ");
        buf_str(out, answer->pack);
    }
    buf_putc(out, ')');
}

static void say_why(const struct policy_answer *answer, struct buf *out)
{
    switch (answer->why) {
    case WHY_RULE:
        buf_puts(out, "by the rule ");
        say_rule(answer, out);
        return;
    case WHY_NO_RULE:
    case WHYS:
        buf_puts(out, "no rule allows this host");
        return;
    case WHY_OPEN:
        buf_puts(out, "no rule denies it");
        return;
    case WHY_PORT:
        buf_puts(out, "not on this port; there is the rule ");
        say_rule(answer, out);
        return;
    case WHY_REQUEST:
        buf_puts(out, "not this method or path; there is the rule ");
        say_rule(answer, out);
        return;
    case WHY_UNSEEN:
        buf_puts(out, "requests inside TLS cannot be seen, and the rule is about requests: ");
        say_rule(answer, out);
        return;
    case WHY_ADDRESS:
        buf_puts(out, "an address needs a rule that names it");
        return;
    case WHY_RAW:
        buf_puts(out, "neither TLS, HTTP/1 nor SSH; other bytes need a rule that ends in /raw");
        return;
    case WHY_CLASS:
        buf_printf(out, "%s addresses are %s", addr_class_name(answer->class),
                   addr_never(answer->class) ? "never reached" : "not reached without a rule");
        return;
    }
}

void policy_say(const struct policy_answer *answer, char out[POLICY_TEXT_SIZE])
{
    static const char *const starts[] = { "denied: ", "allowed: ", "waits for an answer: " };
    autobuf struct buf text = { .max = POLICY_TEXT_SIZE - 1 };

    buf_puts(&text, starts[answer->verdict]);
    say_why(answer, &text);
    memcpy(out, text.data, text.len);
    out[text.len] = 0;
}
