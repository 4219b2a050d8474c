/*
 * What a peer says about its place and its wishes: Last-Event-ID or since=, and the filters. The
 * input is three lines: the number, the types, the object. A number is accepted exactly when it
 * reads back the same; a filter agrees with a slow reading of it.
 */
#include <stdio.h>

#include "base/mem.h"
#include "store/store.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define must(cond)                                                                                 \
    do {                                                                                           \
        if (!(cond))                                                                               \
            abort();                                                                               \
    } while (0)

static void check_since(struct str text)
{
    int64_t since = -1;
    char again[32];

    if (!event_since_parse(text, &since)) {
        must(since == -1);
        return;
    }
    must(since >= 0);
    snprintf(again, sizeof(again), "%lld", (long long)since);
    must(str_is(text, again));
}

/* Element by element, with copies. */
static bool slow_type(const char *type, const char *types)
{
    autofree char *list = xstrdup(types);

    if (!*types)
        return true;
    for (char *rest = list, *item; (item = strsep(&rest, ","));) {
        while (*item == ' ' || *item == '\t')
            item++;
        size_t len = strlen(item);
        while (len && (item[len - 1] == ' ' || item[len - 1] == '\t'))
            item[--len] = 0;
        if (len == 0)
            continue;
        if (strcmp(item, "*") == 0 || strcmp(item, type) == 0)
            return true;
        if (len > 1 && strcmp(item + len - 2, ".*") == 0 && strncmp(type, item, len - 1) == 0)
            return true;
    }
    return false;
}

static bool slow_object(const char *object, const char *wanted)
{
    size_t len = strlen(wanted);

    if (len == 0 || strcmp(object, wanted) == 0)
        return true;
    return wanted[len - 1] == '/' && strncmp(object, wanted, len) == 0;
}

static void check_filter(const char *types, const char *object)
{
    static const char *const events[][2] = {
        { "token.created", "token/t1" },
        { "token.revoked", "token/t2" },
        { "note.created", "" },
        { "a", "a/" },
        { "*", "/" },
        { "a.*", "a/b/c" },
    };

    for (size_t i = 0; i < ARRAY_LEN(events); i++) {
        struct event event = { .type = (char *)events[i][0], .object = (char *)events[i][1] };
        struct event_filter filter = { types, object };

        must(event_matches(&event, &filter) ==
             (slow_type(event.type, types) && slow_object(event.object, object)));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str rest = { (const char *)data, size };
    struct str number = str_cut(&rest, '\n');
    struct str first = str_cut(&rest, '\n');
    autofree char *types = xmemdup0(first.p, first.n);
    autofree char *object = xmemdup0(rest.p, rest.n);

    check_since(number);
    check_filter(types, object);
    return 0;
}
