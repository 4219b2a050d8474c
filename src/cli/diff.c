/*
 * `atoll diff`: what was changed in the view of a directory that a sandbox has, as a list or as a
 * patch. Both sides of a file are the sandbox's to tell: what was there before is the directory as
 * it is now, beneath the layer that has the changes.
 */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/mem.h"
#include "cli/transfer.h"
#include "diff/patch.h"
#include "wire/box.h"

static unsigned mode_of(const struct tree_entry *entry)
{
    if (!entry || S_ISDIR(entry->head.mode))
        return 0;
    if (S_ISLNK(entry->head.mode))
        return PATCH_LINK;
    return entry->head.mode & 0100 ? PATCH_PROGRAM : PATCH_FILE;
}

/* The bytes of one side: of a link its target, of a file what is at `place` in the sandbox. */
static int load(struct cli *cli, const char *id, const char *place, const struct tree_entry *entry,
                struct buf *out, struct err *err)
{
    if (!mode_of(entry))
        return 0;
    if (S_ISLNK(entry->head.mode)) {
        buf_str(out, entry_link(entry));
        return 0;
    }
    struct str name = entry_path(entry);
    autofree char *path = xprintf("%s/%.*s", place, (int)name.n, name.p);
    autoclose int fd = memfd_create("side", MFD_CLOEXEC);
    if (fd < 0)
        return err_sys(err, "keep what comes back");
    if (transfer_file(cli, id, path, entry->head.size, fd, err) < 0)
        return err_wrap(err, "%s", path);
    out->max = (size_t)DIFF_FILE_MAX + 1;
    char *room = buf_reserve(out, (size_t)entry->head.size + 1);
    ssize_t got = room ? pread(fd, room, (size_t)entry->head.size, 0) : 0;
    out->len += got > 0 ? (size_t)got : 0;
    return 0;
}

static const char *why_not(const struct change *change)
{
    const struct tree_entry *sides[] = { change->before, change->after };

    if (change->git)
        return "git's own file";
    for (size_t i = 0; i < ARRAY_LEN(sides); i++) {
        if (!sides[i] || S_ISDIR(sides[i]->head.mode) || S_ISLNK(sides[i]->head.mode))
            continue;
        if (!S_ISREG(sides[i]->head.mode))
            return "neither file nor link";
        if (sides[i]->head.size > (uint64_t)DIFF_FILE_MAX)
            return "too large";
        if (!(sides[i]->head.flags & TREE_HASHED))
            return "it could not be read";
    }
    return NULL;
}

static int put_patch(struct cli *cli, const char *id, const struct change *change, struct err *err)
{
    autobuf struct buf before = { 0 }, after = { 0 };
    autobuf struct buf text = { .max = 8 * (size_t)DIFF_FILE_MAX };
    const char *why = why_not(change);

    if (!mode_of(change->before) && !mode_of(change->after) && !why)
        return 0; /* directories */
    if (why) {
        cli_note(cli, "not in the patch: %.*s: %s", STR_FMT(change->path), why);
        return 0;
    }
    if (load(cli, id, VIEW_PLACE "/before", change->before, &before, err) < 0 ||
        load(cli, id, VIEW_PLACE "/upper", change->after, &after, err) < 0)
        return -1;
    patch_put(&text, &(struct patch_file){ change->path,
                                           { mode_of(change->before), buf_view(&before) },
                                           { mode_of(change->after), buf_view(&after) } });
    if (!buf_ok(&text))
        return err_set(err, ERR_LIMIT, "the patch of %.*s is too large", STR_FMT(change->path));
    for (struct str rest = buf_view(&text); rest.n;) {
        ssize_t done = write(cli->out_fd, rest.p, rest.n);

        if (done < 0)
            return err_sys(err, "write the patch");
        rest = str_from(rest, (size_t)done);
    }
    return 0;
}

static void put_json(struct cli *cli, const struct changes *changes)
{
    struct json_out json = json_to(&cli->out);

    json_open(&json, '{');
    json_key(&json, "items");
    json_open(&json, '[');
    for (size_t i = 0; i < changes->count; i++) {
        char letter[2] = { change_letter(&changes->at[i]), 0 };

        if (changes->at[i].hidden)
            continue;
        json_open(&json, '{');
        json_kv_text(&json, "change", letter);
        json_kv_str(&json, "path", changes->at[i].path);
        json_close(&json, '}');
    }
    json_close(&json, ']');
    json_close(&json, '}');
    buf_putc(&cli->out, '\n');
}

static int diff_run(struct cli *cli, struct err *err)
{
    automanifest struct manifest before = { 0 }, after = { 0 };
    autochanges struct changes changes = { 0 };
    const char *id = cli_escape(cli, cli->args[0]);

    if (transfer_changes(cli, id, &before, &after, err) < 0)
        return -1;
    changes_between(&before, &after, &changes);
    if (cli->json)
        put_json(cli, &changes);
    else if (!cli_has(cli, "patch"))
        changes_summary(&changes, SIZE_MAX, &cli->out);
    for (size_t i = 0; cli_has(cli, "patch") && i < changes.count; i++)
        if (put_patch(cli, id, &changes.at[i], err) < 0)
            return -1;
    return EXIT_OK;
}

static const struct cli_flag diff_flags[] = {
    { "patch", NULL, "As a patch for git on standard output, with the files' contents" },
    { 0 },
};

const struct command cmd_diff = {
    .name = "diff",
    .args = "ID|NAME",
    .help = "Show what was changed in the directory that a sandbox has a view of.",
    .more = "For a sandbox of `atoll run --keep` or --detach. What was there before is the "
            "directory as it is now. One that has a copy of a directory, or none, has nothing to "
            "be compared with: status 3.\n\n"
            "Examples:\n  atoll run --keep -- ./agent 'fix the tests'\n  atoll diff build\n"
            "  atoll diff --patch build | git apply",
    .flags = diff_flags,
    .traits = CMD_REMOTE,
    .run = diff_run,
};
