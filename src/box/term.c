/*
 * The screen of a terminal and the log of its frames.
 *
 * Log: a spool (spool.h) of records of 16 bytes, "ex….frm", beside that of the output. A record
 * says where its frame ends in the output, so record k and the one before it tell which bytes frame
 * k is; its number is its place. Bytes are in their spool before a record counts them. After a kill
 * some may be there that no record tells of: they become the next frame.
 *
 * Screen: fed after each round of output, whether or not anybody looks. After a restart it is
 * rebuilt when somebody asks for it or more output comes, and never from more than TERM_KEY_EVERY
 * bytes: each time that much was printed, a keyframe (bytes that paint the screen) is put into
 * "ex….key" with its position. To rebuild is to read that, and then the log and the output behind
 * it. It is replaced by rename, so that a kill leaves the one or the other. Of a terminal that has
 * ended the last keyframe says all, and its screen is in memory only while somebody looks.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "box/term_own.h"
#include "term/screen.h"

#define RECORD sizeof(struct record)
#define RECORDS_AT_ONCE 64
#define KEY_MAGIC UINT64_C(0x313059454b534154) /* "TASKEY01" */
#define FEED_CHUNK 65536

struct key_head {
    uint64_t magic, position, frame;
    uint32_t len;
    uint16_t rows, cols;
};

static_assert(sizeof(struct record) == 16, "a record of the log");
static_assert(SPOOL_RING % 16 == 0, "records are never cut");

static struct boxes *boxes_of(const struct box_term *term)
{
    return term->exec->box->boxes;
}

static void first_size(const struct box_exec *exec, unsigned *rows, unsigned *cols)
{
    *rows = exec->spec.rows ? (unsigned)exec->spec.rows : TERM_ROWS;
    *cols = exec->spec.cols ? (unsigned)exec->spec.cols : TERM_COLS;
}

static uint64_t printed(const struct box_term *term)
{
    return term->exec->spool[INIT_OUT].end;
}

/* ---- the log ---- */

/* Of a terminal that has ended no file stays open, whoever looks at it or makes a note. */
static void log_rest(struct box_term *term)
{
    if (exec_over(term->exec))
        spool_close(&term->log);
}

static void log_name(const struct box_term *term, char out[SPOOL_NAME_SIZE])
{
    snprintf(out, SPOOL_NAME_SIZE, "%s.frm", term->exec->id);
}

static uint64_t record_end(const struct record *record)
{
    return record->end_kind >> 8;
}

static int read_record(struct box_term *term, uint64_t number, struct record *out, struct err *err)
{
    char name[SPOOL_NAME_SIZE];

    if (number < term->frames && term->frames - number <= TERM_RECENT) {
        *out = term->recent[number % TERM_RECENT];
        if (out->end_kind)
            return 0;
    }
    log_name(term, name);
    ssize_t got =
        spool_read(&term->log, boxes_of(term)->spool_dir, name, number * RECORD, out, RECORD, err);
    log_rest(term);
    if (got >= 0 && (size_t)got != RECORD)
        return err_set(err, ERR_INTERNAL, "the log of terminal %s is cut", term->exec->id);
    return got < 0 ? -1 : 0;
}

static int put_records(struct box_term *term, const struct record *records, size_t count)
{
    char name[SPOOL_NAME_SIZE];
    struct err err = { 0 };

    log_name(term, name);
    int rc = spool_add(&term->log, boxes_of(term)->spool_dir, name, records, count * RECORD, &err);
    log_rest(term);
    if (rc < 0) {
        if (!term->troubled)
            log_error("frames of a terminal wait", kv_str("terminal", term->exec->id),
                      kv_str("error", err.msg));
        term->troubled = true;
        return -1;
    }
    term->troubled = false;
    for (size_t i = 0; i < count; i++)
        term->recent[term->frames++ % TERM_RECENT] = records[i];
    return 0;
}

static struct record record_now(const struct box_term *term, enum term_kind kind, uint64_t end)
{
    int64_t ms = clock_wall_ms() - term->exec->started_ms;

    return (struct record){ .end_kind = end << 8 | kind,
                            .ms = (uint32_t)MIN(MAX(ms, (int64_t)0), (int64_t)UINT32_MAX),
                            .rows = (uint16_t)term->rows,
                            .cols = (uint16_t)term->cols };
}

void term_log_bytes(struct box_term *term)
{
    struct record records[RECORDS_AT_ONCE];
    uint64_t end = printed(term), at = term->logged;

    while (at < end) {
        size_t count = 0;

        while (at < end && count < RECORDS_AT_ONCE) {
            at += MIN(end - at, (uint64_t)TERM_FRAME_MAX);
            records[count++] = record_now(term, TERM_OUTPUT, at);
        }
        if (put_records(term, records, count) < 0)
            return;
        term->logged = at;
    }
}

static bool log_one(struct box_term *term, enum term_kind kind)
{
    term_log_bytes(term);
    struct record record = record_now(term, kind, term->logged);

    return put_records(term, &record, 1) == 0;
}

uint64_t term_note(struct box_term *term)
{
    return log_one(term, TERM_NOTE) ? term->frames - 1 : term->frames;
}

static int load_log(struct box_term *term, struct err *err)
{
    char name[SPOOL_NAME_SIZE];
    struct record last;

    log_name(term, name);
    if (spool_load(&term->log, boxes_of(term)->spool_dir, name, err) < 0)
        return -1;
    term->frames = term->log.end / RECORD;
    if (term->frames == 0)
        return 0;
    if (read_record(term, term->frames - 1, &last, err) < 0)
        return -1;
    term->logged = term->answered = MIN(record_end(&last), printed(term));
    if (last.rows && last.cols) {
        term->rows = last.rows;
        term->cols = last.cols;
    }
    return 0;
}

static uint64_t first_record(const struct box_term *term)
{
    return (spool_begin(&term->log) + RECORD - 1) / RECORD;
}

int term_frame(struct box_term *term, uint64_t number, struct term_frame *out, struct err *err)
{
    struct record record, before = { 0 };

    if (number >= term->frames)
        return 0;
    if (read_record(term, number, &record, err) < 0 ||
        (number && read_record(term, number - 1, &before, err) < 0))
        return -1;
    *out = (struct term_frame){ .number = number,
                                .kind = (enum term_kind)(record.end_kind & 0xff),
                                .from = record_end(&before),
                                .to = record_end(&record),
                                .at_ms = term->exec->started_ms + record.ms,
                                .rows = record.rows,
                                .cols = record.cols };
    return 1;
}

/* By halves: ends never fall along the log. */
int term_find(struct box_term *term, uint64_t position, uint64_t *number, struct err *err)
{
    uint64_t low = first_record(term), high = term->frames;
    struct record record;

    if (low)
        low++; /* its beginning is told by the one before */
    if (position < spool_begin(&term->exec->spool[INIT_OUT]))
        return err_set(err, ERR_GONE, "bytes before position %llu are no longer kept",
                       (unsigned long long)spool_begin(&term->exec->spool[INIT_OUT]));
    if (low && (read_record(term, low - 1, &record, err) < 0 || record_end(&record) > position))
        return err_set(err, ERR_GONE, "position %llu is no longer kept",
                       (unsigned long long)position);
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;

        if (read_record(term, middle, &record, err) < 0)
            return -1;
        if (record_end(&record) <= position)
            low = middle + 1;
        else
            high = middle;
    }
    *number = low;
    return 0;
}

void term_range(struct box_term *term, uint64_t *begin, uint64_t *end)
{
    uint64_t first = first_record(term);
    struct err ignored;

    *end = term->frames;
    *begin = first ? first + 1 : 0;
    uint64_t kept = spool_begin(&term->exec->spool[INIT_OUT]), whole;
    if (kept && term_find(term, kept, &whole, &ignored) == 0)
        *begin = MAX(*begin, MIN(whole + 1, term->frames));
}

/* ---- the screen ---- */

static void key_name(const struct box_term *term, char out[SPOOL_NAME_SIZE], bool fresh)
{
    snprintf(out, SPOOL_NAME_SIZE, "%s.%s", term->exec->id, fresh ? "new" : "key");
}

static bool write_all(int fd, const void *data, size_t len)
{
    const char *from = data;

    while (len) {
        ssize_t done = write(fd, from, len);

        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return false;
        from += done;
        len -= (size_t)done;
    }
    return true;
}

/* What cannot be kept now is kept later; until then a restart has more to read. */
static void key_write(struct box_term *term)
{
    autobuf struct buf key = { 0 };
    char name[SPOOL_NAME_SIZE], fresh[SPOOL_NAME_SIZE];
    int dir = boxes_of(term)->spool_dir;

    term_log_bytes(term);
    screen_keyframe(term->screen, TERM_KEY_SCROLLBACK, &key);
    struct key_head head = { .magic = KEY_MAGIC,
                             .position = term->seen,
                             .frame = term->frames,
                             .len = (uint32_t)key.len,
                             .rows = (uint16_t)term->rows,
                             .cols = (uint16_t)term->cols };
    key_name(term, name, false);
    key_name(term, fresh, true);
    autoclose int fd =
        openat(dir, fresh, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || !buf_ok(&key) || !write_all(fd, &head, sizeof(head)) ||
        !write_all(fd, key.data, key.len) || renameat(dir, fresh, dir, name) < 0) {
        log_warn("the screen of a terminal is not kept", kv_str("terminal", term->exec->id),
                 kv_str("error", strerrordesc_np(errno)));
        return;
    }
    term->key_at = term->seen;
    term->key_made = true;
}

/* The screen as the newest keyframe has it; at position 0 when there is none. */
static void key_read(struct box_term *term)
{
    struct key_head head;
    char name[SPOOL_NAME_SIZE];

    key_name(term, name, false);
    autoclose int fd = openat(boxes_of(term)->spool_dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || read(fd, &head, sizeof(head)) != (ssize_t)sizeof(head) ||
        head.magic != KEY_MAGIC || head.len > TERM_KEY_MAX || head.position > printed(term) ||
        !head.rows || !head.cols)
        return;
    autofree char *data = xmalloc(head.len + 1);
    size_t len = 0;
    while (len < head.len) {
        ssize_t got = read(fd, data + len, head.len - len);

        if (got <= 0)
            return;
        len += (size_t)got;
    }
    screen_resize(term->screen, head.rows, head.cols);
    screen_feed(term->screen, (struct str){ data, len });
    term->seen = term->key_at = head.position;
    term->key_made = true;
}

/* The bytes [term->seen, to) into the screen. */
static int feed_kept(struct box_term *term, uint64_t to, struct err *err)
{
    static char data[FEED_CHUNK]; /* the loop thread's */

    while (term->seen < to) {
        ssize_t got = box_exec_read(term->exec, INIT_OUT, term->seen, data,
                                    (size_t)MIN(to - term->seen, (uint64_t)sizeof(data)), err);
        if (got <= 0)
            return got < 0 ? -1 : err_set(err, ERR_INTERNAL, "output that is not there");
        screen_feed(term->screen, (struct str){ data, (size_t)got });
        term->seen += (uint64_t)got;
    }
    return 0;
}

static int rebuild(struct box_term *term, struct err *err)
{
    uint64_t kept = spool_begin(&term->exec->spool[INIT_OUT]), number;
    struct term_frame frame;
    unsigned rows, cols;

    first_size(term->exec, &rows, &cols);
    term->screen = screen_new(rows, cols, TERM_SCROLLBACK);
    term->seen = 0;
    key_read(term);
    term_log_bytes(term);
    /* Without a keyframe (the disk was full): from where it is still bearable. */
    if (printed(term) - term->seen > TERM_REBUILD_MAX)
        term->seen = MAX(printed(term) - TERM_REBUILD_MAX, kept);
    term->seen = MAX(term->seen, kept);
    if (term_find(term, term->seen, &number, err) < 0)
        return -1;
    for (; term_frame(term, number, &frame, err) > 0; number++) {
        if (frame.kind == TERM_RESIZE)
            screen_resize(term->screen, frame.rows, frame.cols);
        else if (frame.kind == TERM_OUTPUT && feed_kept(term, frame.to, err) < 0)
            return -1;
        if (term->seen <= term->answered)
            screen_replies_clear(term->screen);
    }
    screen_resize(term->screen, term->rows, term->cols);
    return feed_kept(term, printed(term), err);
}

static int need_screen(struct box_term *term, struct err *err)
{
    if (term->screen)
        return feed_kept(term, printed(term), err);
    if (rebuild(term, err) < 0) {
        screen_free(term->screen);
        term->screen = NULL;
        return -1;
    }
    return 0;
}

static void drop_screen(struct timer *timer)
{
    struct box_term *term = container_of(timer, struct box_term, drop);

    screen_free(term->screen);
    term->screen = NULL;
}

struct screen *term_screen(struct box_term *term, uint64_t *position, struct err *err)
{
    if (need_screen(term, err) < 0)
        return NULL;
    *position = term->seen;
    if (box_exec_ended(term->exec) && !timer_is_set(&term->drop))
        timer_set(boxes_of(term)->loop, &term->drop, TERM_SCREEN_KEEP_MS);
    return term->screen;
}

/* ---- what happens to it ---- */

struct box_term *box_exec_term(struct box_exec *exec)
{
    struct err err = { 0 };

    if (exec->term || !exec->spec.tty)
        return exec->term;
    struct box_term *term = xnew(struct box_term);
    exec->term = term;
    term->exec = exec;
    term->log = SPOOL_NONE;
    first_size(exec, &term->rows, &term->cols);
    term->drop.fn = drop_screen;
    attach_init(term);
    if (load_log(term, &err) < 0) {
        log_error("the log of a terminal begins anew", kv_str("terminal", exec->id),
                  kv_str("error", err.msg));
        term->log = SPOOL_NONE;
        term->frames = 0;
        term->answered = printed(term);
    }
    return term;
}

void term_first_size(const struct box_term *term, unsigned *rows, unsigned *cols)
{
    first_size(term->exec, rows, cols);
}

struct box_exec *term_exec(const struct box_term *term)
{
    return term->exec;
}

void term_size(const struct box_term *term, unsigned *rows, unsigned *cols)
{
    *rows = term->rows;
    *cols = term->cols;
}

/*
 * Programs ask their terminal what it is. Whoever may type has one that answers; those who watch
 * have none that is listened to. While there is nobody, ours answers.
 */
static void answer(struct box_term *term)
{
    struct str replies = screen_replies(term->screen);

    term->answered = term->seen;
    if (!replies.n)
        return;
    if (!term->controllers)
        exec_typed(term->exec, replies);
    screen_replies_clear(term->screen);
}

/* The screen after what was printed; nobody waits for it here. */
static void catch_up(struct box_term *term)
{
    struct err err = { 0 };

    if (need_screen(term, &err) < 0) {
        if (!term->troubled)
            log_error("a terminal has no screen", kv_str("terminal", term->exec->id),
                      kv_str("error", err.msg));
        term->troubled = true;
        return;
    }
    answer(term);
    if (term->seen - term->key_at >= TERM_KEY_EVERY)
        key_write(term);
}

void term_round(struct box_exec *exec)
{
    struct box_term *term = box_exec_term(exec);

    term_log_bytes(term);
    attach_all(term); /* before the screen: they wait, and it does not */
    if (printed(term) > term->seen || !term->screen)
        catch_up(term);
}

void term_resized(struct box_exec *exec, unsigned rows, unsigned cols)
{
    struct box_term *term = box_exec_term(exec);
    struct err ignored;

    if (rows == term->rows && cols == term->cols)
        return;
    (void)!need_screen(term, &ignored);
    term_log_bytes(term);
    term->rows = rows;
    term->cols = cols;
    if (term->screen)
        screen_resize(term->screen, rows, cols);
    (void)log_one(term, TERM_RESIZE);
    attach_all(term);
}

void term_ended(struct box_exec *exec)
{
    struct box_term *term = box_exec_term(exec);

    if (printed(term))
        catch_up(term);
    term_log_bytes(term);
    if (term->screen && (!term->key_made || term->key_at != term->seen))
        key_write(term);
    if (term->screen && !timer_is_set(&term->drop))
        timer_set(boxes_of(term)->loop, &term->drop, TERM_SCREEN_KEEP_MS);
    spool_close(&term->log);
    attach_all(term);
}

void term_remove_files(struct boxes *boxes, const char *id)
{
    static const char *const kinds[] = { "frm", "key", "new" };

    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        char name[SPOOL_NAME_SIZE];

        snprintf(name, sizeof(name), "%s.%s", id, kinds[i]);
        if (unlinkat(boxes->spool_dir, name, 0) < 0 && errno != ENOENT)
            log_warn("a file of a terminal stays", kv_str("file", name),
                     kv_str("error", strerrordesc_np(errno)));
    }
}

void term_free(struct box_exec *exec)
{
    struct box_term *term = exec->term;

    if (!term)
        return;
    attach_free(term);
    timer_cancel(boxes_of(term)->loop, &term->drop);
    spool_close(&term->log);
    screen_free(term->screen);
    free(term);
    exec->term = NULL;
}
