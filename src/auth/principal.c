/* Roles by name, and what a principal's scopes let it do. */
#include "auth/auth.h"

static const struct {
    enum role role;
    const char *name;
} roles[] = {
    { ROLE_ADMIN, "admin" }, { ROLE_OPERATOR, "operator" }, { ROLE_VIEWER, "viewer" },
    { ROLE_AGENT, "agent" }, { ROLE_SANDBOX, "sandbox" },
};

const char *role_name(enum role role)
{
    for (size_t i = 0; i < ARRAY_LEN(roles); i++)
        if (roles[i].role == role)
            return roles[i].name;
    return "nobody";
}

bool role_parse(struct str text, enum role *out)
{
    for (size_t i = 0; i < ARRAY_LEN(roles); i++)
        if (str_is(text, roles[i].name)) {
            *out = roles[i].role;
            return true;
        }
    return false;
}

struct reach principal_reach(const struct principal *who)
{
    struct reach reach = { .tenant = who->tenant };

    if (who->role & ROLE_PEOPLE)
        reach.all = true;
    else if (who->via == VIA_INSIDE)
        reach.box = who->id;
    else
        reach.id = who->id;
    /* Only a token that acts as an agent has a name that objects are given to. */
    if (who->role == ROLE_AGENT && (who->via == VIA_TOKEN || who->via == VIA_SIGNED))
        reach.name = who->name;
    return reach;
}

static bool scope_allows(struct str scope, struct str action)
{
    if (str_is(scope, "*") || str_eq(scope, action))
        return true;
    /* "token.*": the dot stays in the prefix, so that "tokenizer.run" is another matter. */
    if (scope.n < 3 || scope.p[scope.n - 1] != '*' || scope.p[scope.n - 2] != '.')
        return false;
    struct str prefix = { scope.p, scope.n - 1 };
    return action.n > prefix.n && str_starts(action, prefix);
}

bool principal_scope(const struct principal *who, const char *action)
{
    struct str rest = str_of(who->scopes);

    if (!rest.n)
        return true;
    while (rest.n)
        if (scope_allows(str_cut(&rest, ','), str_of(action)))
            return true;
    return false;
}
