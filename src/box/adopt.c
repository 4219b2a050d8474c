/*
 * After a start: the rows say what there was, the warden says what there is.
 *
 *   row and box     opened again; its init says what it still holds, and nothing is lost
 *   row without box the sandbox ended while nobody looked: failed, its commands lost
 *   box without row made just before a kill, never acknowledged to anybody: destroyed
 *   another release its init speaks another version: it ends, and one with a disk can be started
 *
 * Then the same for disks (disk.c): after the boxes, because a box without a row may still hold
 * one.
 *
 * The same opening is used when a connection breaks in mid-life.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/log.h"
#include "box/own.h"

/* ---- rows ---- */

/*
 * What was not wished for is stored as null or 0, which a wish may not say: taken out before it is
 * read again as one.
 */
static void drop_unsaid_here(struct json *object)
{
    struct json **at = &object->first;

    while (*at) {
        if ((*at)->type == JSON_NULL || ((*at)->type == JSON_INT && (*at)->num == 0)) {
            *at = (*at)->next;
            object->count--;
        } else {
            at = &(*at)->next;
        }
    }
}

/* The same in what stands inside; no wish is deeper. */
static void drop_unsaid(struct json *object)
{
    drop_unsaid_here(object);
    for (struct json *member = object->first; member; member = member->next)
        if (member->type == JSON_OBJECT)
            drop_unsaid_here(member);
}

static int read_spec(struct arena *arena, struct str text, const struct field *fields, void *out,
                     struct err *err)
{
    struct json *json;

    if (json_parse(arena, arena_str(arena, text), &json, err) < 0)
        return -1;
    if (json->type == JSON_OBJECT)
        drop_unsaid(json);
    return field_decode(fields, json, out, arena, NULL, err);
}

/* What the server alone says is in no wish: read here, and then left out of it. */
static const char *take_parent(struct arena *arena, struct json *object)
{
    for (struct json **at = &object->first; *at; at = &(*at)->next)
        if (str_is((*at)->key, "parent") && (*at)->type == JSON_STRING) {
            const char *parent = arena_memdup0(arena, (*at)->text.p, (*at)->text.n);

            *at = (*at)->next;
            object->count--;
            return parent;
        }
    return NULL;
}

int spec_read(struct arena *arena, struct str text, struct sandbox_spec *out, struct err *err)
{
    const char *parent = NULL;
    struct json *json;

    if (json_parse(arena, arena_str(arena, text), &json, err) < 0)
        return -1;
    if (json->type == JSON_OBJECT) {
        parent = take_parent(arena, json);
        drop_unsaid(json);
    }
    if (field_decode(sandbox_spec_fields, json, out, arena, NULL, err) < 0)
        return -1;
    out->parent = parent;
    return sandbox_spec_settle(out, err);
}

int exec_read_spec(struct box_exec *exec, struct str text, struct err *err)
{
    if (read_spec(&exec->arena, text, exec_spec_fields, &exec->spec, err) < 0)
        return -1;
    if (!exec->spec.argv || !exec->spec.cwd || !exec->spec.user)
        return err_set(err, ERR_INTERNAL, "a command without argv, cwd or user");
    return 0;
}

int exec_load_files(struct box_exec *exec, struct err *err)
{
    for (unsigned s = 0; s < INIT_STREAMS; s++) {
        char name[SPOOL_NAME_SIZE];

        spool_name(name, exec->id, s);
        if (spool_load(&exec->spool[s], exec->box->boxes->spool_dir, name, err) < 0)
            return -1;
    }
    exec->pace.hold = exec->spec.hold;
    if (!exec_over(exec))
        pace_load(&exec->pace);
    return 0;
}

static int load_exec(struct box *box, struct query *q, struct err *err)
{
    autofree char *id = xmemdup0(query_col_str(q, 0).p, query_col_str(q, 0).n);
    struct box_exec *exec = exec_new(box, id, (uint32_t)query_col_i64(q, 1));

    if (!exec_state_parse(query_col_str(q, 2), &exec->state) ||
        exec_read_spec(exec, query_col_str(q, 3), err) < 0)
        return err_set(err, ERR_INTERNAL, "the row of command %s", exec->id);
    snprintf(exec->by, sizeof(exec->by), "%.*s", STR_FMT(query_col_str(q, 4)));
    exec->pid = (int32_t)query_col_i64(q, 5);
    exec->end = (struct init_exited){ .code = (int32_t)query_col_i64(q, 6),
                                      .signal = (int32_t)query_col_i64(q, 7),
                                      .timed_out = query_col_i64(q, 8) != 0,
                                      .user_us = (uint64_t)query_col_i64(q, 9),
                                      .system_us = (uint64_t)query_col_i64(q, 10),
                                      .maxrss_kb = (uint64_t)query_col_i64(q, 11) };
    exec->started_ms = query_col_i64(q, 12);
    exec->ended_ms = query_col_i64(q, 13);
    exec->oom = query_col_i64(q, 14) != 0;
    exec->start_stored = true;
    exec->in_unsure = true;
    exec->end_stored = exec->state == EXEC_EXITED || exec->state == EXEC_LOST;
    if (exec->end_stored)
        box->kept++;
    else
        box->running++;
    if (exec->number >= box->next_number)
        box->next_number = exec->number + 1;
    return exec_load_files(exec, err);
}

static int load_execs(struct box *box, struct db *db, struct err *err)
{
    autoquery struct query *q =
        db_query(db, "SELECT id, number, state, spec, by, pid, code, signal, timed_out, user_us,"
                     " system_us, maxrss_kb, started_ms, ended_ms, oom FROM exec"
                     " WHERE sandbox = $1 ORDER BY number");
    int rc;

    query_text(q, 1, box->id);
    while ((rc = query_step(q, err)) > 0)
        if (load_exec(box, q, err) < 0)
            return -1;
    return rc;
}

static int load_box(struct boxes *boxes, struct query *q, struct err *err)
{
    autofree char *id = xmemdup0(query_col_str(q, 0).p, query_col_str(q, 0).n);
    autofree char *tenant = xmemdup0(query_col_str(q, 1).p, query_col_str(q, 1).n);
    struct box *box = box_new(boxes, id, tenant);

    box->slot = (uint32_t)query_col_i64(q, 2);
    if (!sandbox_state_parse(query_col_str(q, 3), &box->state) ||
        spec_read(&box->arena, query_col_str(q, 5), &box->spec, err) < 0)
        return err_set(err, ERR_INTERNAL, "the row of sandbox %s", id);
    snprintf(box->reason, sizeof(box->reason), "%.*s", STR_FMT(query_col_str(q, 4)));
    snprintf(box->by, sizeof(box->by), "%.*s", STR_FMT(query_col_str(q, 6)));
    box->created_ms = query_col_i64(q, 7);
    box->changed_ms = box->up_ms = query_col_i64(q, 8);
    box->expires_ms = query_col_i64(q, 9);
    box->disk = (uint64_t)query_col_i64(q, 10);
    box->asleep = query_col_i64(q, 11) != 0;
    box->unsure = true;
    return 0;
}

/* ---- files that no command has ---- */

/* A file of this name, if it is one of a command's that is not in `known`, and not of late. */
static void sweep_file(struct boxes *boxes, const struct map *known, const char *name)
{
    struct str rest = str_of(name), id = str_cut(&rest, '.');
    struct stat st;

    if (!rest.n || !id_valid(id, "ex") || map_get(known, id) ||
        fstatat(boxes->spool_dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
        clock_wall_ms() - (int64_t)st.st_mtime * 1000 < SPOOL_ORPHAN_MS)
        return;
    if (unlinkat(boxes->spool_dir, name, 0) == 0)
        log_info("removed an output file that no command has", kv_str("file", name));
}

/*
 * A kill between the end of a row and that of its files leaves them. What is young is left alone:
 * a clock may have been set.
 */
static void sweep_files(struct boxes *boxes)
{
    automap struct map known = { 0 };
    int fd = openat(boxes->spool_dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;

    if (!dir) {
        if (fd >= 0)
            close(fd);
        return;
    }
    list_each (pos, &boxes->all)
        list_each (at, &list_entry(pos, struct box, node)->execs) {
            struct box_exec *exec = list_entry(at, struct box_exec, node);

            map_put(&known, str_of(exec->id), exec);
        }
    while ((entry = readdir(dir)))
        sweep_file(boxes, &known, entry->d_name);
    closedir(dir);
}

int boxes_load(struct boxes *boxes, struct db *db, struct err *err)
{
    int rc;
    autoquery struct query *q =
        db_query(db, "SELECT id, tenant, slot, state, reason, spec, by, created_ms, changed_ms,"
                     " expires_ms, disk, asleep FROM sandbox ORDER BY id");

    while ((rc = query_step(q, err)) > 0)
        if (load_box(boxes, q, err) < 0)
            return -1;
    if (rc < 0 || disks_load(boxes, db, err) < 0 || images_load(boxes, db, err) < 0 ||
        pools_load(boxes, db, err) < 0 || templates_load(boxes, db, err) < 0 ||
        quotas_load(boxes, db, err) < 0 || crashes_load(boxes, db, err) < 0)
        return -1;
    list_each (pos, &boxes->all)
        if (load_execs(list_entry(pos, struct box, node), db, err) < 0)
            return -1;
    ends_load(boxes);
    sweep_files(boxes);
    return 0;
}

/* ---- opening ---- */

static void lost(struct box *box)
{
    box->asleep = false;
    box_lost(box, "it ended while the server was away");
}

void adopt_opened(struct boxes *boxes)
{
    if (boxes->opening && --boxes->opening == 0 && boxes->started && !boxes->stopping) {
        void (*started)(void *ctx) = boxes->started;

        boxes->started = NULL;
        pools_start(boxes);
        map_free(&boxes->listed);
        boxes->listed = (struct map){ 0 };
        started(boxes->started_ctx);
    }
}

static void freezer_settled(struct ask *ask, const struct wire_msg *msg, int fds[WIRE_FDS_MAX])
{
    (void)fds;
    if (!msg || msg->status)
        log_warn("a sandbox may not be as frozen as its row says",
                 kv_str("sandbox", ask->msg.name.id), kv_int("status", msg ? msg->status : -1));
}

/*
 * We may have been killed between a freezing or thawing and its row, or in the middle of a copy,
 * for which a box is frozen without a row: the row decides.
 */
static void settle_freezer(struct box *box)
{
    struct ask *ask =
        ask_new(box->state == SANDBOX_PAUSED ? WIRE_BOX_FREEZE : WIRE_BOX_THAW, box->id);

    ask->answered = freezer_settled;
    ask_send(box->boxes, ask);
}

static void opened(struct ask *ask, const struct wire_msg *msg, int fds[WIRE_FDS_MAX])
{
    struct box *box = ask->box;

    box->busy = NULL;
    if (msg && msg->status == 0 && fds[1] >= 0) {
        link_open(box, take_fd(&fds[1]));
        settle_freezer(box);
    } else if (msg && msg->status == ENOENT) {
        lost(box);
    } else {
        link_tick_soon(box); /* asked again */
    }
    box_woken(box, NULL); /* whoever came meanwhile waits for that */
    adopt_opened(box->boxes);
}

void box_reopen(struct box *box)
{
    struct ask *ask = ask_new(WIRE_BOX_OPEN, box->id);

    box->busy = "being connected";
    ask->answered = opened;
    ask->box = box;
    ask_send(box->boxes, ask);
}

/* ---- another release ---- */

static void parted(struct ask *ask, const struct wire_msg *msg, int fds[WIRE_FDS_MAX])
{
    struct box *box = ask->box;
    char reason[sizeof(box->reason)];

    (void)fds;
    if (!msg || (msg->status && msg->status != ENOENT)) {
        box->busy = NULL;
        link_tick_soon(box); /* asked again */
        return;
    }
    snprintf(reason, sizeof(reason), "it was made by another release (init protocol %u, here %u)%s",
             box->version, (unsigned)INIT_VERSION,
             box->disk ? ": start it to go on with its files" : ", and its files were in memory");
    box->asleep = false;
    box_lost(box, reason);
}

void box_part(struct box *box)
{
    if (box->pool || box->helper) { /* we made it ourselves: that was no honest answer */
        box_condemn(box, "its init broke the protocol");
        return;
    }
    log_warn("a sandbox of another release is ended", kv_str("sandbox", box->id),
             kv_int("version", box->version));
    struct ask *ask = ask_new(WIRE_BOX_DESTROY, box->id);
    box->busy = "being ended";
    ask->answered = parted;
    ask->box = box;
    ask_send(box->boxes, ask);
}

/* ---- what there is ---- */

static void open_all(struct boxes *boxes);

/* When every box that nobody knows is gone. */
static void list_disks(struct boxes *boxes)
{
    if (boxes->boxes_listed && !boxes->destroying && !boxes->stopping)
        disks_start(boxes, open_all);
}

static void all_listed(struct boxes *boxes)
{
    boxes->boxes_listed = true;
    list_disks(boxes);
}

static void destroyed(struct ask *ask, const struct wire_msg *msg, int fds[WIRE_FDS_MAX])
{
    (void)fds;
    struct boxes *boxes = ask->out;

    log_warn("destroyed a sandbox that was never acknowledged", kv_str("sandbox", ask->msg.name.id),
             kv_int("status", msg ? msg->status : -1));
    boxes->destroying--;
    list_disks(boxes);
}

static void take_rows(struct boxes *boxes, const struct box_rows *rows)
{
    for (uint32_t i = 0; i < MIN(rows->count, (uint32_t)BOX_ROWS); i++) {
        const struct box_row *row = &rows->rows[i];

        if (!box_id_ok(row->id))
            continue;
        struct box *box = map_get(&boxes->by_id, str_of(row->id));
        if (box && sandbox_lives(box->state)) {
            if (row->state == BOX_RUNNING)
                (void)map_put(&boxes->listed, str_of(row->id), box);
            continue;
        }
        struct ask *ask = ask_new(WIRE_BOX_DESTROY, row->id);
        ask->answered = destroyed;
        ask->out = boxes;
        boxes->destroying++;
        ask_send(boxes, ask);
    }
}

/* Without its files it cannot go on, and says so now. */
static void check_disk(struct box *box)
{
    const struct disk *disk = disk_by_number(box->boxes, box->disk);

    if (box->state == SANDBOX_STOPPED && box->disk && (!disk || disk->state == DISK_LOST))
        box_ended(box, SANDBOX_FAILED, "its disk is gone", NULL);
}

/* What was told before it was stored is stored now. */
static void store_ends(struct box *box)
{
    list_each (pos, &box->execs) {
        struct box_exec *exec = list_entry(pos, struct box_exec, node);

        if (!exec->end_place)
            continue;
        exec_store_start(exec);
        exec_store_end(exec);
    }
}

static void open_all(struct boxes *boxes)
{
    boxes->opening = 1;
    list_each (pos, &boxes->all) {
        struct box *box = list_entry(pos, struct box, node);

        box_timers_set(box);
        store_ends(box);
        if (!sandbox_lives(box->state)) {
            list_each (at, &box->execs)
                exec_lost(list_entry(at, struct box_exec, node));
            check_disk(box);
            continue;
        }
        if (map_get(&boxes->listed, str_of(box->id))) {
            boxes->opening++;
            box_reopen(box);
        } else {
            lost(box);
        }
    }
    adopt_opened(boxes);
}

static void ask_page(struct boxes *boxes, uint32_t from);

static void listed(struct ask *ask, const struct wire_msg *msg, int fds[WIRE_FDS_MAX])
{
    struct boxes *boxes = ask->out;

    (void)fds;
    if (boxes->stopping)
        return;
    if (!msg || msg->status) {
        /* Nothing can be said about any box: those of the rows are lost to us. */
        log_warn("the warden keeps no sandboxes",
                 kv_str("status", msg ? strerrordesc_np(msg->status) : "no answer"));
        all_listed(boxes);
        return;
    }
    take_rows(boxes, &msg->rows);
    if (msg->rows.next > ask->msg.page.from)
        ask_page(boxes, msg->rows.next);
    else
        all_listed(boxes);
}

static void ask_page(struct boxes *boxes, uint32_t from)
{
    struct ask *ask = ask_new(WIRE_BOX_LIST, NULL);

    ask->msg.page.from = from;
    ask->answered = listed;
    ask->out = boxes;
    ask_send(boxes, ask);
}

void boxes_start(struct boxes *boxes, void (*done)(void *ctx), void *ctx)
{
    boxes->started = done;
    boxes->started_ctx = ctx;
    ask_page(boxes, 0);
}
