/*
 * What has ended and is not in the store yet: places in one file, each for one command.
 *
 * Whoever waits for a command is told its end when it stands here, not when the disk has its row. A
 * write into a file outlives every process, and what a failure of power takes, it takes with the
 * sandbox whose command it was. A place holds the end; and, if the store has nothing of the command
 * at all, what is to be stored of its start: its row, its event, the audit row of who asked for it.
 * It is wiped and used again when the store has all of that.
 *
 * After a start a place counts if the command's row says that it runs, or if there is no such row
 * and the place has the start; and in both cases if its output is as long as the end says. Anything
 * else in the file means nothing, and is wiped then: a kill between the commit and the wiping
 * leaves a place whose command the store has, and when that row makes room for others, a later
 * start would take the place for a command that was never stored.
 */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/log.h"
#include "box/own.h"

#define ENDS_FILE "ends"
#define END_MAGIC UINT64_C(0x313053444e454c41) /* "ALENDS01" */

struct end_head {
    unsigned char sum[SHA256_SIZE]; /* of all that follows, texts included */
    uint64_t magic;
    char sandbox[ID_SIZE], exec[ID_SIZE];
    struct init_exited end;
    int64_t started_ms, ended_ms, audit_ms;
    uint32_t number;
    int32_t pid;
    uint32_t oom, text_len; /* 0: its row is stored */
};

struct place {
    struct end_head head;
    char text[END_PLACE_SIZE - sizeof(struct end_head)];
};
_Static_assert(sizeof(struct place) == END_PLACE_SIZE, "places lie side by side");

static void sum_up(const struct place *place, unsigned char out[SHA256_SIZE])
{
    sha256((const char *)place + SHA256_SIZE,
           sizeof(struct end_head) - SHA256_SIZE + place->head.text_len, out);
}

static off_t at_of(unsigned number)
{
    return (off_t)number * END_PLACE_SIZE;
}

void ends_open(struct boxes *boxes)
{
    struct ends *ends = &boxes->ends;

    ends->fd = openat(boxes->spool_dir, ENDS_FILE, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (ends->fd < 0) { /* whoever waits, waits for the store */
        log_warn("no file for what has ended", kv_str("error", strerrordesc_np(errno)));
        return;
    }
    for (unsigned at = ENDS_MAX; at-- > 0;) /* the first is taken first, and its page is warm */
        ends->free[ends->free_count++] = (uint16_t)at;
}

void ends_close(struct boxes *boxes)
{
    if (boxes->ends.fd >= 0)
        close(boxes->ends.fd);
    boxes->ends.fd = -1;
}

/* ---- the start, as texts ---- */

static void put_text(struct buf *out, struct str text)
{
    uint32_t len = (uint32_t)text.n;

    buf_append(out, &len, sizeof(len));
    buf_str(out, text);
}

static bool take_text(struct str *rest, struct str *out)
{
    uint32_t len;

    if (rest->n < sizeof(len))
        return false;
    memcpy(&len, rest->p, sizeof(len));
    if (rest->n - sizeof(len) < len)
        return false;
    *out = (struct str){ rest->p + sizeof(len), len };
    *rest = str_from(*rest, sizeof(len) + len);
    return true;
}

/* Where the texts of an audit row are, in the order in which they are kept. */
static const char **audit_text(struct audit *row, unsigned number)
{
    const char **const texts[] = { &row->tenant,     &row->actor,  &row->role,
                                   &row->action,     &row->object, &row->outcome,
                                   &row->request_id, &row->peer,   &row->detail };

    return number < ARRAY_LEN(texts) ? texts[number] : NULL;
}

void end_note_start(struct box_exec *exec, struct change *change, const struct audit *row)
{
    struct audit *copy = arena_new(&change->arena, struct audit);
    const char **text;

    change_texts(change);
    *copy = *row;
    exec->note.max = sizeof(((struct place *)NULL)->text);
    put_text(&exec->note, str_of(change->exec_spec));
    put_text(&exec->note, str_of(change->exec_by));
    put_text(&exec->note, change->body);
    for (unsigned i = 0; (text = audit_text(copy, i)); i++) {
        *text = arena_strdup(&change->arena, *text);
        put_text(&exec->note, str_of(*text));
    }
    exec->note_ms = row->at_ms;
    if (!buf_ok(&exec->note)) { /* too long: its caller waits for the store */
        end_note_free(exec);
        return;
    }
    change->op = NULL; /* whoever asked may be told, and gone, before it is stored */
    change->noted = copy;
}

void end_note_free(struct box_exec *exec)
{
    buf_free(&exec->note);
    exec->note = (struct buf){ 0 };
}

/* ---- keeping ---- */

bool end_keep(struct box_exec *exec)
{
    static struct place place; /* the loop thread's */
    struct ends *ends = &exec->box->boxes->ends;

    if (!ends->free_count || (!exec->start_stored && !exec->note.len))
        return false;
    place.head = (struct end_head){ .magic = END_MAGIC,
                                    .end = exec->end,
                                    .started_ms = exec->started_ms,
                                    .ended_ms = exec->ended_ms,
                                    .audit_ms = exec->note_ms,
                                    .number = exec->number,
                                    .pid = exec->pid,
                                    .oom = exec->oom,
                                    .text_len = (uint32_t)exec->note.len };
    memcpy(place.head.sandbox, exec->box->id, sizeof(place.head.sandbox));
    memcpy(place.head.exec, exec->id, sizeof(place.head.exec));
    if (exec->note.len)
        memcpy(place.text, exec->note.data, exec->note.len);
    sum_up(&place, place.head.sum);
    unsigned at = ends->free[ends->free_count - 1];
    ssize_t len = (ssize_t)(sizeof(place.head) + exec->note.len);
    if (pwrite(ends->fd, &place, (size_t)len, at_of(at)) != len)
        return false;
    ends->free_count--;
    exec->end_place = at + 1;
    return true;
}

static void wipe(const struct ends *ends, unsigned at)
{
    static const char zeros[END_PLACE_SIZE]; /* what was run may be nobody's business any more */

    if (pwrite(ends->fd, zeros, sizeof(zeros), at_of(at)) != (ssize_t)sizeof(zeros))
        log_warn("what was told of a command stays in a file", kv_int("place", at));
}

void end_drop(struct box_exec *exec)
{
    struct ends *ends = &exec->box->boxes->ends;

    if (!exec->end_place)
        return;
    unsigned at = exec->end_place - 1;
    wipe(ends, at);
    ends->free[ends->free_count++] = (uint16_t)at;
    exec->end_place = 0;
}

/* ---- after a start ---- */

static bool read_place(const struct boxes *boxes, unsigned at, struct place *out)
{
    unsigned char sum[SHA256_SIZE];
    ssize_t got = pread(boxes->ends.fd, out, sizeof(*out), at_of(at));

    if (got < (ssize_t)sizeof(out->head) || out->head.magic != END_MAGIC ||
        out->head.text_len > (size_t)got - sizeof(out->head))
        return false;
    sum_up(out, sum);
    return memcmp(sum, out->head.sum, sizeof(sum)) == 0;
}

static struct box_exec *exec_named(const struct box *box, const char *id)
{
    list_each (pos, &box->execs) {
        struct box_exec *exec = list_entry(pos, struct box_exec, node);

        if (strcmp(exec->id, id) == 0)
            return exec;
    }
    return NULL;
}

static bool as_long(const struct box_exec *exec, const struct end_head *head)
{
    return exec->spool[INIT_OUT].end == head->end.end[INIT_OUT] &&
           exec->spool[INIT_ERR].end == head->end.end[INIT_ERR];
}

/* Its start as it is to be stored, from the texts. */
static bool take_start(struct box_exec *exec, const struct place *place, struct err *err)
{
    struct str rest = { place->text, place->head.text_len }, spec, by, body, one;
    struct change *change = exec->held;
    struct audit *row = arena_new(&change->arena, struct audit);
    const char **text;

    if (!take_text(&rest, &spec) || !take_text(&rest, &by) || !take_text(&rest, &body) ||
        exec_read_spec(exec, spec, err) < 0)
        return false;
    for (unsigned i = 0; (text = audit_text(row, i)); i++) {
        if (!take_text(&rest, &one))
            return false;
        *text = arena_memdup0(&change->arena, one.p, one.n);
    }
    row->at_ms = place->head.audit_ms;
    snprintf(exec->by, sizeof(exec->by), "%.*s", STR_FMT(by));
    change->exec_spec = arena_memdup0(&change->arena, spec.p, spec.n);
    change->exec_by = arena_strdup(&change->arena, exec->by);
    change->body = arena_str(&change->arena, body);
    change->noted = row;
    return true;
}

/* A command of which the store has nothing. */
static struct box_exec *revive(struct box *box, const struct place *place)
{
    struct box_exec *exec = exec_new(box, place->head.exec, place->head.number);
    struct err err = { 0 };

    exec->state = EXEC_RUNNING;
    exec->pid = place->head.pid;
    exec->started_ms = place->head.started_ms;
    box->running++;
    exec_hold_start(exec, NULL);
    if (!take_start(exec, place, &err) || exec_load_files(exec, &err) < 0 ||
        !as_long(exec, &place->head)) {
        log_warn("a command's end makes no sense", kv_str("exec", exec->id),
                 kv_str("error", err.msg));
        box->running--;
        exec_free(exec);
        return NULL;
    }
    box->next_number = MAX(box->next_number, exec->number + 1);
    return exec;
}

/* Is it still needed? Then its command has ended. */
static bool take_up(struct boxes *boxes, const struct place *place, unsigned at)
{
    const struct end_head *head = &place->head;
    struct box *box = map_get(&boxes->by_id, str_of(head->sandbox));
    struct box_exec *exec = box ? exec_named(box, head->exec) : NULL;
    if (box && !exec && head->text_len)
        exec = revive(box, place);
    if (!exec || exec->state != EXEC_RUNNING || !as_long(exec, head))
        return false;
    exec->state = EXEC_EXITED;
    exec->end = head->end;
    exec->ended_ms = head->ended_ms;
    exec->oom = head->oom != 0;
    exec->end_place = at + 1;
    box->running--;
    box->kept++;
    log_info("a command's end was told before it was stored", kv_str("exec", exec->id));
    return true;
}

void ends_load(struct boxes *boxes)
{
    static struct place place;
    struct ends *ends = &boxes->ends;

    ends->free_count = 0;
    for (unsigned at = ENDS_MAX; at-- > 0 && ends->fd >= 0;) {
        bool whole = read_place(boxes, at, &place);

        if (whole && take_up(boxes, &place, at))
            continue;
        if (whole)
            wipe(ends, at);
        ends->free[ends->free_count++] = (uint16_t)at;
    }
}
