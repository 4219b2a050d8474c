/*
 * Who watches a terminal, and who types.
 *
 * A watcher has a place in the log (term.h) and no queue: it is given frames from the spool until
 * its peer wants no more, and again when there is room or news. So one that reads slowly costs
 * nothing but its own delay, and nobody waits for it. One whose place has been overwritten is let
 * go with the reason; when it comes back with its place it is told of the gap and gets a keyframe.
 *
 * Typing needs a lease, of which a terminal has max_controllers. It is held until it is given back,
 * taken over by somebody who says so, or not used for lease_ms. Whoever loses it is told, and goes
 * on watching. Each new holder is an event and a row of the audit; single keys are not.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/metric.h"
#include "box/term_own.h"
#include "term/screen.h"

METRIC_GAUGE(watching, "atoll_terminal_viewers", "Attachments to terminals");
METRIC_COUNTER(detached_total, "atoll_terminal_detached_total", "Attachments ended by the server",
               "why", "slow", "forgotten");
enum { WHY_SLOW, WHY_FORGOTTEN };

#define NEWS_MS 20 /* changes of who is there are told together */

const char *attach_role_name(enum attach_role role)
{
    return role == ATTACH_CONTROLLER ? "controller" : "observer";
}

const char *attach_why_name(enum attach_why why)
{
    static const char *const names[] = { [ATTACH_ASKED] = "asked",
                                         [ATTACH_HELD] = "held",
                                         [ATTACH_TAKEN] = "taken",
                                         [ATTACH_IDLE] = "idle",
                                         [ATTACH_RELEASED] = "released" };
    return names[why];
}

static struct loop *loop_of(const struct box_term *term)
{
    return term->exec->box->boxes->loop;
}

static struct attach *attach_at(struct list *node)
{
    return list_entry(node, struct attach, node);
}

/* ---- who is there ---- */

struct attach *term_attached(struct box_term *term, struct attach *after)
{
    struct list *next = after ? after->node.next : term->attached.next;

    return next == &term->attached ? NULL : attach_at(next);
}

unsigned term_viewers(const struct box_term *term)
{
    return term->viewers;
}

unsigned term_controllers(const struct box_term *term)
{
    return term->controllers;
}

static void tell_members(struct timer *timer)
{
    struct box_term *term = container_of(timer, struct box_term, news);
    uint64_t number = 0;
    bool noted = false;

    list_each_safe (pos, &term->attached) {
        struct attach *attach = attach_at(pos);

        if (!attach->ops->members || !attach->going)
            continue;
        if (!noted)
            number = term_note(term);
        noted = true;
        attach->ops->members(attach, number);
    }
    if (noted)
        attach_all(term);
}

static void members_changed(struct box_term *term)
{
    if (!timer_is_set(&term->news))
        timer_set(loop_of(term), &term->news, NEWS_MS);
}

/* ---- leases ---- */

int64_t term_lease_ms(const struct box_term *term)
{
    return term->exec->spec.lease_ms ? term->exec->spec.lease_ms : TERM_LEASE_MS;
}

unsigned term_lease_count(const struct box_term *term)
{
    return term->exec->spec.max_controllers ? (unsigned)term->exec->spec.max_controllers : 1;
}

static void lease_watch(struct box_term *term)
{
    int64_t now = clock_mono_ms(), first = INT64_MAX;

    timer_cancel(loop_of(term), &term->lease);
    list_each (pos, &term->attached) {
        const struct attach *attach = attach_at(pos);

        if (attach->role == ATTACH_CONTROLLER)
            first = MIN(first, attach->active_ms + term_lease_ms(term));
    }
    if (first != INT64_MAX)
        timer_set(loop_of(term), &term->lease, MAX(first - now, (int64_t)1));
}

static void set_role(struct attach *attach, enum attach_role role)
{
    struct box_term *term = attach->term;

    if (attach->role == role)
        return;
    attach->role = role;
    attach->active_ms = clock_mono_ms();
    if (role == ATTACH_CONTROLLER)
        term->controllers++;
    else
        term->controllers--;
    lease_watch(term);
    members_changed(term);
}

static void downgrade(struct attach *attach, enum attach_why why)
{
    set_role(attach, ATTACH_OBSERVER);
    attach->ops->role(attach, why);
}

static void lease_over(struct timer *timer)
{
    struct box_term *term = container_of(timer, struct box_term, lease);
    int64_t now = clock_mono_ms();

    list_each_safe (pos, &term->attached) {
        struct attach *attach = attach_at(pos);

        if (attach->role == ATTACH_CONTROLLER && attach->active_ms + term_lease_ms(term) <= now)
            downgrade(attach, ATTACH_IDLE);
    }
    lease_watch(term);
}

/* The holder that has been silent longest makes room. */
static void take_over(struct box_term *term)
{
    struct attach *oldest = NULL;

    list_each (pos, &term->attached) {
        struct attach *attach = attach_at(pos);

        if (attach->role == ATTACH_CONTROLLER && (!oldest || attach->active_ms < oldest->active_ms))
            oldest = attach;
    }
    if (oldest)
        downgrade(oldest, ATTACH_TAKEN);
}

static void record_control(const struct attach *attach)
{
    struct box_exec *exec = attach->term->exec;
    struct change *change = change_new(exec->box, exec, NULL, "terminal.controlled");

    change->audit = true;
    change->actor = arena_strdup(&change->arena, attach->who);
    change->write = row_nothing;
    change->exec = NULL; /* it may be forgotten before this is stored */
    change->box = NULL;
    change_submit(change);
}

/* 1: it has a lease now; 0: others have them all. */
static int obtain(struct attach *attach, bool take)
{
    struct box_term *term = attach->term;

    if (attach->role == ATTACH_CONTROLLER)
        return 1;
    if (term->controllers >= term_lease_count(term)) {
        if (!take)
            return 0;
        take_over(term);
    }
    set_role(attach, ATTACH_CONTROLLER);
    record_control(attach);
    return 1;
}

static int may_control(const struct attach *attach, struct err *err)
{
    if (attach->may_control)
        return 0;
    return err_role(err, "this credential may watch terminals and not type");
}

int attach_control(struct attach *attach, bool take, struct err *err)
{
    if (may_control(attach, err) < 0)
        return -1;
    int got = obtain(attach, take);
    attach->ops->role(attach, got ? ATTACH_ASKED : ATTACH_HELD);
    return got;
}

void attach_release(struct attach *attach)
{
    if (attach->role == ATTACH_CONTROLLER)
        downgrade(attach, ATTACH_RELEASED);
}

/* ---- typing ---- */

static int check_typing(struct attach *attach, struct err *err)
{
    if (attach->role != ATTACH_CONTROLLER)
        return err_set(err, ERR_FORBIDDEN, "attached as an observer; ask for control to type");
    if (attach->term->exec->state != EXEC_RUNNING)
        return err_set(err, ERR_CONFLICT, "the command has ended");
    attach->active_ms = clock_mono_ms(); /* lease_over looks again when the timer comes */
    box_touch(attach->term->exec->box);
    return 0;
}

int attach_input(struct attach *attach, struct str data, struct err *err)
{
    if (check_typing(attach, err) < 0)
        return -1;
    if (data.n > TERM_INPUT_MAX)
        return err_set(err, ERR_LIMIT, "more than %d bytes of input at once", TERM_INPUT_MAX);
    if (!data.n)
        return 0;
    return exec_typed(attach->term->exec, data) ? 0 : 1;
}

int attach_resize(struct attach *attach, int64_t rows, int64_t cols, struct err *err)
{
    if (check_typing(attach, err) < 0)
        return -1;
    if (rows < TERM_ROWS_MIN || rows > SCREEN_ROWS_MAX)
        return err_field(err, "rows", "rows are from %d to %d", TERM_ROWS_MIN, SCREEN_ROWS_MAX);
    if (cols < TERM_COLS_MIN || cols > SCREEN_COLS_MAX)
        return err_field(err, "cols", "cols are from %d to %d", TERM_COLS_MIN, SCREEN_COLS_MAX);
    return box_exec_resize(attach->term->exec, (unsigned)rows, (unsigned)cols, err);
}

int attach_signal(struct attach *attach, int number, bool tree, struct err *err)
{
    if (check_typing(attach, err) < 0)
        return -1;
    return exec_signal_by(attach->term->exec, number, tree, attach->who, err);
}

void term_room(struct box_exec *exec)
{
    list_each_safe (pos, &exec->term->attached) {
        struct attach *attach = attach_at(pos);

        if (attach->ops->room)
            attach->ops->room(attach);
    }
}

/* ---- being told ---- */

static void leave(struct attach *attach)
{
    struct box_term *term = attach->term;

    if (attach->role == ATTACH_CONTROLLER)
        term->controllers--;
    attach->role = ATTACH_OBSERVER;
    list_remove(&attach->node);
    attach->term = NULL;
    attach->going = false;
    term->viewers--;
    metric_add(&watching, 0, -1);
    lease_watch(term);
    members_changed(term);
}

static void lose(struct attach *attach, unsigned metric, const char *why)
{
    metric_add(&detached_total, metric, 1);
    leave(attach);
    attach->ops->lost(attach, why);
}

/* What became of giving: an attachment that is lost may be gone, memory and all. */
enum given { GIVEN, NOTHING, LOST };

/* The screen as it is now; with a gap before it unless the place is that of the screen. */
static enum given give_screen(struct attach *attach, bool tell_gap)
{
    struct box_term *term = attach->term;
    autobuf struct buf key = { 0 };
    struct err err = { 0 };
    uint64_t position;

    term_log_bytes(term);
    struct screen *screen = term_screen(term, &position, &err);
    if (!screen) {
        lose(attach, WHY_SLOW, "the output cannot be read now");
        return LOST;
    }
    screen_keyframe(screen, TERM_KEY_SCROLLBACK, &key);
    if (tell_gap && attach->at != position)
        attach->ops->gap(attach, position);
    attach->at = position;
    attach->frame = term->frames;
    attach->fresh = false;
    attach->wants_key = false;
    attach->waiting = !attach->ops->keyframe(attach, buf_view(&key));
    return GIVEN;
}

/* Bytes of an output frame from attach->at on: how many; -1 they are gone. */
static ssize_t read_frame(struct attach *attach, const struct term_frame *frame, char *out)
{
    struct err err;
    size_t len = 0;

    while (attach->at + len < frame->to) {
        ssize_t got =
            box_exec_read(attach->term->exec, INIT_OUT, attach->at + len, out + len,
                          (size_t)MIN(frame->to - attach->at - len, TERM_FRAME_MAX - len), &err);
        if (got <= 0)
            return -1;
        len += (size_t)got;
    }
    return (ssize_t)len;
}

static enum given give_frame(struct attach *attach)
{
    static char data[TERM_FRAME_MAX]; /* the loop thread's */
    struct term_frame frame;
    struct err err = { 0 };
    ssize_t len = 0;
    int rc = term_frame(attach->term, attach->frame, &frame, &err);

    if (rc == 0)
        return NOTHING;
    if (rc > 0 && frame.kind == TERM_OUTPUT)
        len = read_frame(attach, &frame, data);
    if (rc < 0 || len < 0) {
        if (attach->fresh)
            return give_screen(attach, true);
        lose(attach, WHY_SLOW,
             "too slow: the output that comes next is no longer kept; come back with the position");
        return LOST;
    }
    attach->fresh = false;
    bool more = attach->ops->frame(attach, &frame, (struct str){ data, (size_t)len });
    attach->at = frame.to;
    attach->frame++;
    attach->waiting = !more;
    return GIVEN;
}

static void pump(struct attach *attach)
{
    enum given given = GIVEN;

    if (!attach->going || attach->waiting)
        return;
    if (attach->wants_key)
        given = give_screen(attach, true);
    while (given == GIVEN && !attach->waiting)
        given = give_frame(attach);
    if (given != NOTHING || attach->end_told)
        return;
    if (box_exec_ended(attach->term->exec) && attach->frame == attach->term->frames) {
        attach->end_told = true;
        attach->ops->ended(attach);
    }
}

void attach_all(struct box_term *term)
{
    list_each_safe (pos, &term->attached)
        pump(attach_at(pos));
}

void attach_drained(struct attach *attach)
{
    attach->waiting = false;
    if (attach->term)
        pump(attach);
}

void attach_go(struct attach *attach)
{
    attach->going = true;
    pump(attach);
}

void attach_repaint(struct attach *attach)
{
    attach->wants_key = true;
    pump(attach);
}

/* ---- coming and going ---- */

/* Where it begins. */
static int find_place(struct attach *attach, struct box_term *term, const struct attach_wish *wish,
                      struct err *err)
{
    uint64_t end = term->exec->spool[INIT_OUT].end;
    struct err gone = { 0 };
    struct term_frame frame;

    term_log_bytes(term);
    attach->at = end;
    attach->frame = term->frames;
    attach->wants_key = wish->from == ATTACH_SCREEN;
    if (wish->from == ATTACH_POSITION) {
        if (wish->place > end)
            return err_set(err, ERR_RANGE, "the terminal has printed %llu bytes so far",
                           (unsigned long long)end);
        attach->at = wish->place;
        if (term_find(term, wish->place, &attach->frame, &gone) < 0)
            attach->wants_key = true;
    } else if (wish->from == ATTACH_FRAME && wish->place < term->frames) {
        attach->frame = wish->place;
        attach->wants_key = term_frame(term, wish->place, &frame, &gone) < 0;
        attach->at = attach->wants_key ? 0 : frame.from;
    }
    return 0;
}

int attach_open(struct attach *attach, struct box_exec *exec, const struct attach_wish *wish,
                enum attach_why *why, struct err *err)
{
    struct box_term *term = box_exec_term(exec);
    unsigned char raw[4];

    if (!term)
        return err_set(err, ERR_CONFLICT, "command %s has no terminal", exec->id);
    if (term->viewers >= TERM_VIEWERS_MAX)
        return err_set(err, ERR_RATE, "%d watch this terminal already", TERM_VIEWERS_MAX);
    if (wish->role == ATTACH_CONTROLLER && may_control(attach, err) < 0)
        return -1;
    if (find_place(attach, term, wish, err) < 0)
        return -1;
    random_bytes(raw, sizeof(raw));
    memcpy(attach->id, "ws-", 3);
    hex_text(raw, sizeof(raw), attach->id + 3);
    attach->term = term;
    attach->role = ATTACH_OBSERVER;
    attach->fresh = true;
    attach->waiting = attach->going = attach->end_told = false;
    list_append(&term->attached, &attach->node);
    term->viewers++;
    metric_add(&watching, 0, 1);
    *why = ATTACH_ASKED;
    if (wish->role == ATTACH_CONTROLLER && !obtain(attach, wish->take))
        *why = ATTACH_HELD;
    members_changed(term);
    return 0;
}

void attach_close(struct attach *attach)
{
    if (attach->term)
        leave(attach);
}

void attach_init(struct box_term *term)
{
    list_init(&term->attached);
    term->lease.fn = lease_over;
    term->news.fn = tell_members;
}

void attach_free(struct box_term *term)
{
    while (!list_empty(&term->attached))
        lose(attach_at(term->attached.next), WHY_FORGOTTEN, "the command is no longer kept here");
    timer_cancel(loop_of(term), &term->lease);
    timer_cancel(loop_of(term), &term->news);
}
