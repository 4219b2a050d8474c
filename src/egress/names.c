/* Two maps over one list. */
#include "egress/names.h"

#include <stdlib.h>

#include "base/mem.h"
#include "wire/egress.h"

#define FIRST 256u                     /* 198.18.1.0; before it are addresses of ours */
#define LAST (~EGRESS_NET_MASK - 256u) /* 198.19.254.255 */

_Static_assert(LAST - FIRST > EGRESS_NAMES_MAX * 2, "an address is not soon another name's");

struct name {
    struct list link;
    uint32_t addr;
    struct host host;
};

static struct str addr_key(const uint32_t *addr)
{
    return (struct str){ (const char *)addr, sizeof(*addr) };
}

static void name_drop(struct names *names, struct name *name)
{
    map_del(&names->by_name, host_str(&name->host));
    map_del(&names->by_addr, addr_key(&name->addr));
    list_remove(&name->link);
    names->count--;
    free(name);
}

static struct name *oldest(const struct names *names)
{
    return list_entry(names->used.next, struct name, link);
}

void names_free(struct names *names)
{
    while (names->count)
        name_drop(names, oldest(names));
    map_free(&names->by_name);
    map_free(&names->by_addr);
}

static void touch(struct names *names, struct name *name)
{
    list_remove(&name->link);
    list_append(&names->used, &name->link);
}

static uint32_t addr_next(struct names *names)
{
    uint32_t addr;

    do {
        if (names->next < FIRST || names->next > LAST)
            names->next = FIRST;
        addr = EGRESS_NET + names->next++;
    } while (map_get(&names->by_addr, addr_key(&addr)));
    return addr;
}

uint32_t names_put(struct names *names, const struct host *host)
{
    struct name *name = map_get(&names->by_name, host_str(host));

    if (!name) {
        if (names->count >= EGRESS_NAMES_MAX)
            name_drop(names, oldest(names));
        name = xnew(struct name);
        name->host = *host;
        name->addr = addr_next(names);
        map_put(&names->by_name, host_str(&name->host), name);
        map_put(&names->by_addr, addr_key(&name->addr), name);
        names->count++;
    }
    touch(names, name);
    return name->addr;
}

bool names_get(struct names *names, uint32_t addr, struct host *out)
{
    struct name *name = map_get(&names->by_addr, addr_key(&addr));

    if (!name)
        return false;
    touch(names, name);
    *out = name->host;
    return true;
}
