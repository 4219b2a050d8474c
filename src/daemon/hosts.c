/* Text against text: a Host header is compared as sent, so every accepted spelling is listed. */
#include "daemon/hosts.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <limits.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

#define NAME "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-"

void hosts_add(struct hosts *hosts, struct arena *arena, const char *text)
{
    for (size_t i = 0; i < hosts->count; i++)
        if (strcmp(hosts->items[i], text) == 0)
            return;
    if (hosts->count == HOSTS_MAX)
        return;
    hosts->items[hosts->count++] = arena_strdup(arena, text);
    hosts->items[hosts->count] = NULL;
}

/* With its port, and without when the scheme implies it. */
static void add_named(struct hosts *hosts, struct arena *arena, struct str name, struct str port,
                      bool tls)
{
    hosts_add(hosts, arena, arena_printf(arena, "%.*s:%.*s", STR_FMT(name), STR_FMT(port)));
    if (str_is(port, tls ? "443" : "80"))
        hosts_add(hosts, arena, arena_printf(arena, "%.*s", STR_FMT(name)));
}

/* Neither an IPv4 address nor one in brackets. */
static bool is_name(const char *text)
{
    return text[0] != '[' && strspn(text, "0123456789.") != strlen(text);
}

void hosts_of_listener(struct hosts *hosts, struct arena *arena, const char *text, bool tls,
                       const char *const *own)
{
    const char *colon = strrchr(text, ':');
    struct str name, port;

    if (!colon || str_starts(str_of(text), STR("unix:")))
        return; /* nobody resolves a name to get to a Unix socket: it takes any */
    name = (struct str){ text, (size_t)(colon - text) };
    port = str_of(colon + 1);
    bool any4 = str_is(name, "0.0.0.0"), any6 = str_is(name, "[::]");
    if (!any4 && !any6)
        add_named(hosts, arena, name, port, tls);
    if (any4 || any6 || str_starts(name, STR("127.")) || str_is(name, "[::1]")) {
        add_named(hosts, arena, STR("localhost"), port, tls);
        if (any4)
            add_named(hosts, arena, STR("127.0.0.1"), port, tls);
        if (any6)
            add_named(hosts, arena, STR("[::1]"), port, tls);
    }
    for (; (any4 || any6) && own && *own; own++)
        if (is_name(*own) || ((*own)[0] == '[') == any6)
            add_named(hosts, arena, str_of(*own), port, tls);
}

static const char *address_text(struct arena *arena, const struct sockaddr *addr)
{
    char text[INET6_ADDRSTRLEN];

    if (addr->sa_family == AF_INET) {
        struct sockaddr_in v4;

        memcpy(&v4, addr, sizeof(v4));
        return arena_strdup(arena, inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text)));
    }
    if (addr->sa_family == AF_INET6) {
        struct sockaddr_in6 v6;

        memcpy(&v6, addr, sizeof(v6));
        return arena_printf(arena, "[%s]", inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text)));
    }
    return NULL;
}

const char *const *hosts_own(struct arena *arena)
{
    const char **list = arena_alloc(arena, sizeof(char *) * (HOSTS_MAX + 1));
    struct ifaddrs *first = NULL;
    size_t count = 0;

    char *name = arena_alloc(arena, HOST_NAME_MAX + 1);
    if (gethostname(name, HOST_NAME_MAX) == 0 && is_name(name) &&
        strspn(name, NAME) == strlen(name))
        list[count++] = name;
    if (getifaddrs(&first) < 0)
        return list; /* then `host` has to name them */
    for (struct ifaddrs *at = first; at && count < HOSTS_MAX; at = at->ifa_next) {
        const char *text = at->ifa_addr ? address_text(arena, at->ifa_addr) : NULL;

        if (text)
            list[count++] = text;
    }
    freeifaddrs(first);
    return list;
}
