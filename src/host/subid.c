/* Reads what shadow's newuidmap will read again; it decides, and this only says so beforehand. */
#include "host/subid.h"

#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/str.h"

/* "name:100000:65536" */
static bool range_line(struct str line, const char *name, uid_t uid, struct subid_range *out)
{
    char number[16];
    uint64_t first, count;

    snprintf(number, sizeof(number), "%u", uid);
    struct str who = str_cut(&line, ':'), from = str_cut(&line, ':');
    if (!(name && str_is(who, name)) && !str_is(who, number))
        return false;
    if (!str_to_u64(from, &first) || !str_to_u64(line, &count) || first == 0 || count == 0 ||
        first >= UINT32_MAX || count > UINT32_MAX - first)
        return false;
    *out = (struct subid_range){ (uint32_t)first, (uint32_t)count };
    return true;
}

bool subid_find(const char *path, const char *name, uid_t uid, struct subid_range *out)
{
    FILE *file = fopen(path, "re");
    char text[512];
    struct subid_range best = { 0 }, one;

    while (file && fgets(text, sizeof(text), file)) {
        struct str line = { text, strcspn(text, "\n") };

        if (range_line(line, name, uid, &one) && one.count > best.count)
            best = one;
    }
    if (file)
        fclose(file);
    if (!best.count)
        return false;
    best.count = MIN(best.count, SUBID_MAX);
    *out = best;
    return true;
}

static const char *find_program(const char *const places[2])
{
    struct stat st;

    for (int i = 0; i < 2; i++)
        if (stat(places[i], &st) == 0 && S_ISREG(st.st_mode) && st.st_mode & 0111)
            return places[i];
    return NULL;
}

const char *subid_look(struct subid *out)
{
    static const char *const uid_places[] = { "/usr/bin/newuidmap", "/usr/local/bin/newuidmap" };
    static const char *const gid_places[] = { "/usr/bin/newgidmap", "/usr/local/bin/newgidmap" };
    const struct passwd *who = getpwuid(geteuid());
    const char *name = who ? who->pw_name : NULL;

    *out = (struct subid){ .uid_program = find_program(uid_places),
                           .gid_program = find_program(gid_places) };
    if (!subid_find("/etc/subuid", name, geteuid(), &out->uids) ||
        !subid_find("/etc/subgid", name, geteuid(), &out->gids))
        return "this user has no range in /etc/subuid and /etc/subgid";
    if (MIN(out->uids.count, out->gids.count) < SUBID_USEFUL)
        return "this user's range in /etc/subuid or /etc/subgid has fewer than 1024 ids";
    return out->uid_program && out->gid_program ? NULL
                                                : "newuidmap and newgidmap are not installed";
}
