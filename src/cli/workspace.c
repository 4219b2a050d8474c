/*
 * In: the tree as one archive, written as it is walked. Back: the manifest of the sandbox against
 * the one from before the command; then the contents of the changed files, one request each or the
 * whole tree at once when that is less, into the stage (apply.h), where they are checked.
 */
#include "cli/workspace.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/apply.h"
#include "cli/ignored.h"
#include "cli/progress.h"
#include "cli/transfer.h"
#include "wire/box.h"

#define PAGE 4096            /* of memory: a file takes so many whole ones */
#define FULL_PART 32         /* full is when less than such a part is left */
#define LARGE (256ull << 20) /* then it is worth a word */
#define SHOWN_MAX 100        /* changes listed one by one */
#define TREE_LEAST 16        /* changed files, before all files are fetched instead */
#define REQUEST_WORTH 524288 /* bytes */
#define RETRY_MS 100
#define RETRY_MAX_MS 60000 /* of a server that is away while changes come back */

bool workspace_asked(const struct cli *cli)
{
    return cli_has(cli, "patch") || cli_has(cli, "apply");
}

void workspace_free(struct workspace *ws)
{
    manifest_free(&ws->before);
    if (ws->root >= 0)
        close(ws->root);
    if (ws->patch >= 0)
        close(ws->patch);
    if (ws->stage_in >= 0)
        close(ws->stage_in);
    *ws = WORKSPACE_NONE;
}

static int given_up(const struct workspace *ws, struct err *err)
{
    int number = ws->signal ? *ws->signal : 0;

    return number ? err_set(err, ERR_CANCELLED, "interrupted: nothing was taken back") : 0;
}

static void put_size(struct buf *out, uint64_t bytes)
{
    static const char units[] = " kMGT";
    double value = (double)bytes;
    size_t unit = 0;

    while (value >= 1000 && unit + 2 < sizeof(units)) {
        value /= 1000;
        unit++;
    }
    if (unit)
        buf_printf(out, "%.1f %cB", value, units[unit]);
    else
        buf_printf(out, "%llu bytes", (unsigned long long)bytes);
}

/* ---- what is here ---- */

/* What a run that was killed left (stage.c), or one that is at work now has for a moment. */
static bool is_stage(const char *name, const struct stat *st)
{
    return S_ISDIR(st->st_mode) && strncmp(name, STAGE_PREFIX, strlen(STAGE_PREFIX)) == 0 &&
           strlen(name) == strlen(STAGE_PREFIX) + STAGE_ID;
}

/* A pattern without a slash is about a name anywhere, one with a slash about the whole path. */
static bool excluded(const void *ctx, const char *path)
{
    const struct cli *cli = ctx;
    const char *slash = strrchr(path, '/'), *pattern;
    size_t at = 0;

    while ((pattern = cli_next(cli, "exclude", &at))) {
        bool whole = strchr(pattern, '/') != NULL;

        if (fnmatch(pattern, whole || !slash ? path : slash + 1, whole ? FNM_PATHNAME : 0) == 0)
            return true;
    }
    return false;
}

struct leaving_out {
    const struct cli *cli;
    uint64_t stages; /* of those left out */
};

static bool leave_out(void *ctx, const char *path, const struct stat *st)
{
    struct leaving_out *out = ctx;
    const char *slash = strrchr(path, '/');

    if (is_stage(slash ? slash + 1 : path, st)) {
        out->stages++;
        return true;
    }
    return excluded(out->cli, path);
}

static int scan(struct cli *cli, struct workspace *ws, struct err *err)
{
    auto_with(walk_end) struct walk walk = { 0 };
    autofree struct tree_fail *fail = xnew(struct tree_fail);
    struct leaving_out out = { .cli = cli };
    struct tree_filter filter = { leave_out, &out };
    int rc = walk_begin(&walk, ws->root, fail);

    walk.filter = &filter;
    while (rc >= 0 && (rc = walk_next(&walk)) > 0) {
        if (S_ISREG(walk.st.st_mode))
            ws->bytes += (uint64_t)walk.st.st_size;
        if (S_ISREG(walk.st.st_mode) || S_ISLNK(walk.st.st_mode))
            ws->files++;
        else if (!S_ISDIR(walk.st.st_mode))
            ws->special++;
    }
    ws->excluded = walk.skipped - out.stages;
    return rc < 0 ? transfer_failed(fail, err) : 0;
}

static void say_what(struct cli *cli, const struct workspace *ws)
{
    autobuf struct buf text = { 0 };

    buf_printf(&text, "copying %llu file%s, ", (unsigned long long)ws->files,
               ws->files == 1 ? "" : "s");
    put_size(&text, ws->bytes);
    if (ws->excluded)
        buf_printf(&text, "; %llu left out by --exclude", (unsigned long long)ws->excluded);
    cli_note(cli, "%s", buf_cstr(&text));
    if (ws->special)
        cli_note(cli, "%llu socket%s, FIFO%s or device%s not copied",
                 (unsigned long long)ws->special, ws->special == 1 ? "" : "s",
                 ws->special == 1 ? "" : "s", ws->special == 1 ? " was" : "s were");
    if (ws->bytes > LARGE)
        cli_note(cli, "that is a lot: --exclude leaves something out, --bind copies nothing");
}

/* What could be done about it, where something can. */
static int failed(struct cli *cli, const struct err *err)
{
    if (err->sys == EACCES)
        snprintf(cli->hint, sizeof(cli->hint), "--exclude leaves out what you may not read");
    if (err->code == ERR_NO_SPACE)
        snprintf(cli->hint, sizeof(cli->hint),
                 "--disk gives it more room, --exclude leaves something out");
    return -1;
}

/* ---- where it goes in the end ---- */

static const char *temporary(void)
{
    const char *tmp = getenv("TMPDIR");

    return tmp && tmp[0] == '/' ? tmp : "/tmp";
}

/* Where contents wait: beside the files they will replace, or, for a patch alone, anywhere. */
static int stage_place(struct cli *cli, const struct workspace *ws, struct err *err)
{
    const char *tmp = temporary();

    if (cli_has(cli, "apply"))
        return fcntl(ws->root, F_DUPFD_CLOEXEC, 3);
    int fd = open(tmp, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? err_sys(err, "%s", tmp) : fd;
}

static bool may_write(int dir, const char *name)
{
    return faccessat(dir, name, W_OK | X_OK, AT_EACCESS) == 0;
}

/*
 * Can the patch be written there? A file is made only when there is something to write: until then
 * it could stand in the workspace. What is there and is no file, such as a pipe, is kept open:
 * closing it would tell its reader that this was all.
 */
static int patch_place(struct cli *cli, struct workspace *ws, struct err *err)
{
    const char *name = cli_text(cli, "patch"), *slash = strrchr(name, '/');
    autofree char *above = slash ? xmemdup0(name, (size_t)(slash - name) + 1) : xstrdup(".");
    struct stat st;

    if (strcmp(name, "-") == 0)
        return 0;
    autoclose int fd = open(name, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0 && errno != ENOENT)
        return err_sys(err, "%s", name);
    if (fd < 0)
        return may_write(AT_FDCWD, above) ? 0 : err_sys(err, "%s", above);
    if (fstat(fd, &st) == 0 && !S_ISREG(st.st_mode))
        ws->patch = take_fd(&fd);
    return 0;
}

/* Found out before the command runs, which may take hours. */
static int check_places(struct cli *cli, struct workspace *ws, const char *path, struct err *err)
{
    if (!workspace_asked(cli))
        return 0;
    if (cli_has(cli, "patch") && patch_place(cli, ws, err) < 0)
        return err_wrap(err, "--patch");
    autoclose int place = stage_place(cli, ws, err);
    if (place < 0)
        return -1;
    if (may_write(place, "."))
        return 0;
    return cli_has(cli, "apply") ? err_sys(err, "--apply: write to %s", path)
                                 : err_sys(err, "write to the directory for temporary files");
}

int workspace_open(struct cli *cli, struct workspace *ws, const char *path, struct err *err)
{
    ws->root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (ws->root < 0)
        return err_sys(err, "%s", path);
    return check_places(cli, ws, path, err);
}

int workspace_scan(struct cli *cli, struct workspace *ws, const char *path, struct err *err)
{
    if (scan(cli, ws, err) < 0) {
        err_wrap(err, "%s", path);
        return failed(cli, err);
    }
    return 0;
}

/* ---- a view ---- */

/* No file that was changed before has a later time. */
void workspace_since(struct workspace *ws)
{
    clock_gettime(CLOCK_REALTIME, &ws->since);
}

/*
 * Files get their times from a clock that goes in steps of some milliseconds, and lags behind.
 * Until it has passed that time: what changes from then on has a later one.
 */
static void next_step(const struct workspace *ws)
{
    struct timespec now;

    while (clock_gettime(CLOCK_REALTIME_COARSE, &now) == 0 &&
           (now.tv_sec < ws->since.tv_sec ||
            (now.tv_sec == ws->since.tv_sec && now.tv_nsec <= ws->since.tv_nsec)))
        poll(NULL, 0, 1);
}

/* What is mounted below the directory; the view has what lies beneath. */
static void say_mounts(struct cli *cli, const struct workspace *ws)
{
    autofree char *link = xprintf("/proc/self/fd/%d", ws->root);
    char path[PATH_MAX], line[2 * PATH_MAX];
    FILE *mounts = fopen("/proc/self/mountinfo", "re");
    ssize_t len = readlink(link, path, sizeof(path) - 1);

    while (mounts && len > 0 && fgets(line, sizeof(line), mounts)) {
        struct str rest = str_of(line), at = STR_NONE;

        for (int i = 0; i < 5; i++)
            at = str_cut(&rest, ' ');
        if (len == 1 ||
            (at.n > (size_t)len && at.p[len] == '/' && !memcmp(at.p, path, (size_t)len)))
            cli_note(cli, "not in the sandbox: %.*s, which is mounted below the directory",
                     STR_FMT(at));
    }
    if (mounts)
        (void)fclose(mounts);
}

void workspace_viewed(struct cli *cli, const struct workspace *ws)
{
    say_mounts(cli, ws);
    next_step(ws);
}

/* The files that changed, as the sandbox has them in its layer. */
static int view_changes(struct cli *cli, struct workspace *ws, const char *id,
                        struct manifest *after, struct err *err)
{
    if (transfer_changes(cli, id, &ws->before, after, err) < 0)
        return -1;
    ws->before.partial = true;
    ws->before.here = ws->root;
    ws->before.since = ws->since;
    return 0;
}

int workspace_send(struct cli *cli, struct workspace *ws, const char *id, struct err *err)
{
    if (ws->files || ws->special || ws->excluded)
        say_what(cli, ws);
    struct leaving_out out = { .cli = cli };
    struct tree_filter filter = { leave_out, &out };
    progress_begin(cli);
    int rc = transfer_tree(cli, id, WORKSPACE, ws->root, &filter, err);
    progress_end(cli, false);
    if (rc < 0)
        return failed(cli, err);
    return transfer_manifest(cli, id, WORKSPACE, &ws->before, err);
}

/* ---- and back ---- */

/* A server that restarts is asked again: what the command did is there and nowhere else. */
static bool again(struct cli *cli, const struct workspace *ws, const struct err *err,
                  int64_t *since_ms)
{
    struct err ignored = { 0 };

    if (err->code != ERR_UNAVAILABLE || given_up(ws, &ignored) < 0)
        return false;
    if (!*since_ms)
        *since_ms = clock_mono_ms();
    if (clock_mono_ms() - *since_ms > RETRY_MAX_MS)
        return false;
    cli->hint[0] = cli->request_id[0] = 0; /* of the attempt that does not count */
    poll(NULL, 0, RETRY_MS);
    return true;
}

static bool wanted(struct cli *cli, const struct change *change)
{
    if (!change_has_data(change) || !(change->after->head.flags & TREE_HASHED))
        return false;
    return !change->git || cli_has(cli, "apply-git");
}

static int fetch_one(struct cli *cli, const char *id, const struct change *change, size_t at,
                     struct stage *stage, struct err *err)
{
    autofree char *path = xprintf(WORKSPACE "/%.*s", (int)change->path.n, change->path.p);
    autoclose int fd = stage_new(stage, at, err);

    if (fd < 0 || transfer_file(cli, id, path, change->after->head.size, fd, err) < 0)
        return -1;
    return stage_keep(stage, at, fd, change->after, err);
}

static int fetch_file(struct cli *cli, const struct workspace *ws, const char *id,
                      const struct change *change, size_t at, struct stage *stage, struct err *err)
{
    int64_t since_ms = 0;

    while (fetch_one(cli, id, change, at, stage, err) < 0)
        if (!again(cli, ws, err, &since_ms))
            return -1;
    return 0;
}

/* A request for each file costs about what so many bytes of others cost. */
static bool tree_is_less(struct cli *cli, const struct changes *changes,
                         const struct manifest *after)
{
    uint64_t all = 0, count = 0;

    for (size_t i = 0; i < after->count; i++)
        all += S_ISREG(after->at[i].head.mode) ? after->at[i].head.size : 0;
    for (size_t i = 0; i < changes->count; i++) {
        if (!wanted(cli, &changes->at[i]))
            continue;
        all -= MIN(all, changes->at[i].after->head.size);
        count++;
    }
    return count >= TREE_LEAST && all / REQUEST_WORTH < count;
}

/* The tree, or file by file; of a tree that cannot be packed whole, too. */
static int fetch_all(struct cli *cli, struct workspace *ws, const char *id,
                     const struct changes *changes, const struct manifest *after,
                     struct stage *stage, struct err *err)
{
    autoclose int tree = -1;

    if (tree_is_less(cli, changes, after)) {
        tree = stage_tree(stage, err);
        if (tree >= 0 &&
            transfer_tree_back(cli, id, ws->view ? VIEW_PLACE "/upper" : WORKSPACE, tree, err) < 0)
            close(take_fd(&tree));
    }
    for (size_t i = 0; i < changes->count; i++) {
        const struct change *change = &changes->at[i];

        if (given_up(ws, err) < 0)
            return -1;
        if (!wanted(cli, change))
            continue;
        if ((tree >= 0 ? stage_take(stage, tree, i, change, err)
                       : fetch_file(cli, ws, id, change, i, stage, err)) < 0)
            return err_wrap(err, "%.*s", STR_FMT(change->path));
    }
    return 0;
}

static int fetch(struct cli *cli, struct workspace *ws, const char *id,
                 const struct changes *changes, const struct manifest *after, struct stage *stage,
                 struct err *err)
{
    int place = stage_place(cli, ws, err);

    if (place < 0 || stage_make(stage, place, changes->count, err) < 0)
        return -1;
    memcpy(ws->stage, stage->name, sizeof(ws->stage));
    ws->stage_in = fcntl(place, F_DUPFD_CLOEXEC, 3);
    progress_begin(cli);
    int rc = fetch_all(cli, ws, id, changes, after, stage, err);
    progress_end(cli, false);
    return rc;
}

void workspace_unstage(struct workspace *ws)
{
    static struct tree_fail fail; /* large, and there is one such thread */

    if (ws->stage_in >= 0)
        (void)!tree_remove(ws->stage_in, ws->stage, &fail);
}

static int write_patch(struct cli *cli, struct workspace *ws, const struct changes *changes,
                       struct stage *stage, struct err *err)
{
    const char *name = cli_text(cli, "patch");
    bool here = strcmp(name, "-") == 0;
    autoclose int file = take_fd(&ws->patch);

    if (!here && file < 0)
        file = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0666);
    if (!here && file < 0)
        return err_sys(err, "%s", name);
    return apply_patch(cli, ws->root, &ws->before, changes, stage, here ? cli->out_fd : file, err);
}

/* First the patch, which changes nothing here: it is of use even if --apply is refused. */
static int take_back(struct cli *cli, struct workspace *ws, const char *id,
                     const struct changes *changes, const struct manifest *after, struct err *err)
{
    autostage struct stage stage = STAGE_NONE;
    struct apply_options options = { .root = ws->root, .git = cli_has(cli, "apply-git") };
    struct err patch = { 0 };

    if (fetch(cli, ws, id, changes, after, &stage, err) < 0)
        return err->code == ERR_CANCELLED ? -1 : err_wrap(err, "nothing was taken back");
    int rc = cli_has(cli, "patch") ? write_patch(cli, ws, changes, &stage, &patch) : 0;
    if (cli_has(cli, "apply") && given_up(ws, err) < 0)
        return cli_has(cli, "patch") && rc == 0
                   ? err_set(err, ERR_CANCELLED, "interrupted: there is the patch, nothing else")
                   : -1;
    if (cli_has(cli, "apply") &&
        apply_changes(cli, &options, &ws->before, changes, &stage, err) < 0)
        return -1;
    if (rc < 0)
        *err = patch;
    return rc;
}

/* When the command has filled the memory for its files, what it could not write is missing. */
static void say_full(struct cli *cli, const struct workspace *ws, const struct manifest *after)
{
    uint64_t used = 0;

    for (size_t i = 0; i < after->count; i++)
        if (S_ISREG(after->at[i].head.mode))
            used += (after->at[i].head.size + PAGE - 1) / PAGE * PAGE;
    if (ws->room && used >= ws->room - ws->room / FULL_PART)
        cli_note(cli, "the sandbox's files fill the memory that they may have: --storage disk puts "
                      "them on disk, --disk SIZE gives them more");
}

int workspace_finish(struct cli *cli, struct workspace *ws, const char *id, struct err *err)
{
    automanifest struct manifest after = { 0 };
    autochanges struct changes changes = { 0 };
    bool asked = workspace_asked(cli);
    int64_t since_ms = 0;

    while ((ws->view ? view_changes(cli, ws, id, &after, err)
                     : transfer_manifest(cli, id, WORKSPACE, &after, err)) < 0)
        if (!again(cli, ws, err, &since_ms))
            return err_wrap(err, "what changed");
    say_full(cli, ws, &after);
    changes_between(&ws->before, &after, &changes);
    /* What was not copied may be here: it can be neither compared nor replaced. */
    size_t left_out = changes_leave_out(&changes, excluded, cli);
    struct ignored_source source = { id, WORKSPACE, ws->root };
    size_t ignored = !changes.count || cli_has(cli, "no-gitignore")
                         ? 0
                         : ignored_leave_out(cli, &source, &changes);
    if (changes.count || asked) {
        autobuf struct buf text = { 0 };

        changes_summary(&changes, SHOWN_MAX, &text);
        /* Nobody may be reading: no reason to stop. */
        (void)!write(cli->err_fd, text.data, text.len);
    }
    if (ignored)
        cli_note(cli, "%zu change%s left out by .gitignore; --no-gitignore takes %s", ignored,
                 ignored == 1 ? "" : "s", ignored == 1 ? "it" : "them");
    if (left_out)
        cli_note(cli, "%zu change%s left out by --exclude", left_out, left_out == 1 ? "" : "s");
    if ((changes.count || ignored) && !asked && !cli_has(cli, "keep"))
        cli_note(cli, "the changes are discarded; to keep them: --apply takes them back, "
                      "--patch FILE writes them to a file, --keep leaves the sandbox");
    return asked ? take_back(cli, ws, id, &changes, &after, err) : 0;
}

int workspace_save(struct cli *cli, const char *id, struct err *err)
{
    autofree char *path = xprintf("%s/atoll-kept-XXXXXX", temporary());

    if (!mkdtemp(path))
        return err_sys(err, "make a directory %s", path);
    autoclose int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = dir < 0 ? err_sys(err, "%s", path) : transfer_tree_back(cli, id, WORKSPACE, dir, err);
    if (rc == 0)
        cli_note(cli, "the workspace as the command left it is in %s", path);
    else if (rmdir(path) < 0) /* not empty */
        err_wrap(err, "but for those in %s", path);
    return rc;
}
