/*
 * Changes below a directory by inotify, as they come, until killed. Recursive is best effort: what
 * happens in a new directory before it is watched is not told (its creation is), and beyond
 * INIT_WATCH_DIRS_MAX directories "lost" says so once; so does an overflowing queue.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>

#include "init/init.h"

#define WATCHED                                                                                    \
    (IN_CREATE | IN_MODIFY | IN_CLOSE_WRITE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO |            \
     IN_ATTRIB | IN_DELETE_SELF | IN_ONLYDIR | IN_EXCL_UNLINK)

struct watching {
    struct builtin *job;
    int root, notify;
    bool recursive, lost_told;
    struct watched {
        int number;
        char *path; /* owned; below the root */
    } * dirs;
    size_t count;
};

static int tell(struct watching *watching, uint8_t what, bool is_dir, const char *path)
{
    struct tree_sink *out = &watching->job->out;
    struct init_seen seen = { what, is_dir, (uint16_t)strlen(path) };

    return out->put(out->ctx, &seen, sizeof(seen)) < 0 ||
                   out->put(out->ctx, path, seen.path_len) < 0
               ? builtin_sys(watching->job, NULL)
               : 0;
}

static int add(struct watching *watching, const char *path)
{
    char own[32];
    /* Watched by descriptor: the name may be another directory by now. */
    autoclose int fd = *path ? tree_open(watching->root, path, O_PATH | O_DIRECTORY, 0)
                             : fcntl(watching->root, F_DUPFD_CLOEXEC, 0);

    if (fd < 0)
        return 0;
    if (watching->count == INIT_WATCH_DIRS_MAX) {
        bool told = watching->lost_told;

        watching->lost_told = true;
        return told ? 0 : tell(watching, INIT_SEEN_LOST, true, "");
    }
    snprintf(own, sizeof(own), "/proc/self/fd/%d", fd);
    int number = inotify_add_watch(watching->notify, own, WATCHED);
    if (number < 0)
        return *path ? 0 : builtin_sys(watching->job, watching->job->args[0]);
    for (size_t i = 0; i < watching->count; i++)
        if (watching->dirs[i].number == number)
            return 0;
    char *copy = strdup(path);
    if (!copy)
        return builtin_sys(watching->job, NULL);
    watching->dirs[watching->count++] = (struct watched){ number, copy };
    return 0;
}

static int add_below(struct watching *watching, const char *path)
{
    auto_with(walk_end) struct walk walk = { 0 };
    char whole[TREE_PATH_MAX + 1];
    autoclose int dir = *path ? tree_open(watching->root, path, O_RDONLY | O_DIRECTORY, 0)
                              : fcntl(watching->root, F_DUPFD_CLOEXEC, 0);
    int rc;

    if (dir < 0)
        return 0;
    if (walk_begin(&walk, dir, &watching->job->fail) < 0)
        return *path ? 0 : -1;
    while ((rc = walk_next(&walk)) > 0) {
        if (!S_ISDIR(walk.st.st_mode))
            continue;
        int len = snprintf(whole, sizeof(whole), "%s%s%s", path, *path ? "/" : "", walk.path);
        if (len <= TREE_PATH_MAX && add(watching, whole) < 0)
            return -1;
        if (watching->lost_told)
            break;
    }
    return 0;
}

static void forget(struct watching *watching, int number)
{
    for (size_t i = 0; i < watching->count; i++)
        if (watching->dirs[i].number == number) {
            free(watching->dirs[i].path);
            watching->dirs[i] = watching->dirs[--watching->count];
            return;
        }
}

static uint8_t what_of(uint32_t mask)
{
    static const struct {
        uint32_t bit;
        uint8_t what;
    } table[] = {
        { IN_CREATE, INIT_SEEN_CREATED },
        { IN_DELETE, INIT_SEEN_REMOVED },
        { IN_MOVED_FROM, INIT_SEEN_MOVED_FROM },
        { IN_MOVED_TO, INIT_SEEN_MOVED_TO },
        { IN_MODIFY | IN_CLOSE_WRITE, INIT_SEEN_CHANGED },
        { IN_ATTRIB, INIT_SEEN_MODE },
    };

    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (mask & table[i].bit)
            return table[i].what;
    return 0;
}

static int take(struct watching *watching, const struct inotify_event *event)
{
    char path[TREE_PATH_MAX + TREE_NAME_MAX + 2];
    const char *above = NULL;
    bool is_dir = event->mask & IN_ISDIR;

    if (event->mask & IN_Q_OVERFLOW)
        return tell(watching, INIT_SEEN_LOST, true, "");
    for (size_t i = 0; i < watching->count && !above; i++)
        if (watching->dirs[i].number == event->wd)
            above = watching->dirs[i].path;
    if (!above)
        return 0;
    if (event->mask & IN_DELETE_SELF && !*above)
        return tell(watching, INIT_SEEN_REMOVED, true, "");
    if (event->mask & IN_IGNORED) {
        forget(watching, event->wd);
        return 0;
    }
    uint8_t what = what_of(event->mask);
    if (!what || !event->len)
        return 0;
    snprintf(path, sizeof(path), "%s%s%s", above, *above ? "/" : "", event->name);
    if (strlen(path) > TREE_PATH_MAX)
        return 0;
    if (tell(watching, what, is_dir, path) < 0)
        return -1;
    if (is_dir && watching->recursive &&
        (what == INIT_SEEN_CREATED || what == INIT_SEEN_MOVED_TO) &&
        (add(watching, path) < 0 || add_below(watching, path) < 0))
        return -1;
    return 0;
}

static int follow(struct watching *watching)
{
    char events[8192] __attribute__((aligned(8)));

    for (;;) {
        if (builtin_flush() < 0)
            return builtin_sys(watching->job, NULL);
        ssize_t got = read(watching->notify, events, sizeof(events));
        if (got <= 0)
            return builtin_sys(watching->job, NULL);
        for (ssize_t at = 0; at < got;) {
            const struct inotify_event *event = (const void *)(events + at);

            if (take(watching, event) < 0)
                return -1;
            at += (ssize_t)(sizeof(*event) + event->len);
        }
    }
}

int builtin_watch(struct builtin *job)
{
    struct watching watching = { .job = job };
    uint64_t recursive;

    if (builtin_number(job, job->args[1], 10, 1, &recursive) < 0)
        return -1;
    autoclose int root = builtin_open(job, job->args[0], O_RDONLY | O_DIRECTORY);
    autoclose int notify = inotify_init1(IN_CLOEXEC);
    if (root < 0)
        return -1;
    watching.dirs = calloc(INIT_WATCH_DIRS_MAX, sizeof(*watching.dirs));
    if (notify < 0 || !watching.dirs)
        return builtin_sys(job, job->args[0]);
    watching.root = root;
    watching.notify = notify;
    watching.recursive = recursive;
    if (add(&watching, "") < 0 || (recursive && add_below(&watching, "") < 0))
        return -1;
    /* The first word: from here on everything is seen. */
    if (tell(&watching, INIT_SEEN_MODE, true, "") < 0)
        return -1;
    return follow(&watching);
}
