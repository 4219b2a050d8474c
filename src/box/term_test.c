/*
 * term: what a terminal keeps and who is told: places, gaps, roles and leases, slow watchers,
 * restarts; against a warden and an init that are played.
 */
#include "box/term.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "box/box_rig.h"
#include "box/term_own.h"
#include "term/screen.h"

/* ---- a watcher that writes down what it is told ---- */

struct witness {
    struct attach attach;
    struct buf told; /* output bytes as they are; others in brackets */
    unsigned takes;  /* frames until it says stop; 0: all */
    unsigned frames;
    uint64_t last_frame;
    bool lost, ended;
};

static struct witness *witness_of(struct attach *attach)
{
    return container_of(attach, struct witness, attach);
}

static bool on_frame(struct attach *attach, const struct term_frame *frame, struct str data)
{
    struct witness *witness = witness_of(attach);

    witness->last_frame = frame->number;
    if (frame->kind == TERM_RESIZE)
        buf_printf(&witness->told, "[%ux%u]", frame->cols, frame->rows);
    if (frame->kind == TERM_OUTPUT) {
        CHECK_INT(attach->at + data.n, frame->to);
        buf_str(&witness->told, data);
    }
    return !witness->takes || ++witness->frames % witness->takes;
}

static void on_gap(struct attach *attach, uint64_t to)
{
    buf_printf(&witness_of(attach)->told, "[gap %llu %llu]", (unsigned long long)attach->at,
               (unsigned long long)to);
}

static bool on_keyframe(struct attach *attach, struct str data)
{
    CHECK(data.n > 0);
    buf_printf(&witness_of(attach)->told, "[key %llu]", (unsigned long long)attach->at);
    return true;
}

static void on_role(struct attach *attach, enum attach_why why)
{
    buf_printf(&witness_of(attach)->told, "[%s: %s]", attach_role_name(attach->role),
               attach_why_name(why));
}

static void on_ended(struct attach *attach)
{
    CHECK(!witness_of(attach)->ended);
    witness_of(attach)->ended = true;
}

static void on_lost(struct attach *attach, const char *why)
{
    CHECK(why != NULL && attach->term == NULL);
    witness_of(attach)->lost = true;
}

static const struct attach_ops witness_ops = { .frame = on_frame,
                                               .gap = on_gap,
                                               .keyframe = on_keyframe,
                                               .role = on_role,
                                               .ended = on_ended,
                                               .lost = on_lost };

static struct witness witness_new(const char *who)
{
    struct witness witness = { .attach = { .ops = &witness_ops, .may_control = true } };

    snprintf(witness.attach.who, sizeof(witness.attach.who), "%s", who);
    return witness;
}

static const char *told(struct witness *witness)
{
    return buf_cstr(&witness->told);
}

static void forget_told(struct witness *witness)
{
    buf_clear(&witness->told);
}

static void join_at(struct witness *witness, struct box_exec *exec, enum attach_from from,
                    uint64_t place)
{
    struct attach_wish wish = { .from = from, .place = place };
    enum attach_why why;
    struct err err;

    CHECK_OK(attach_open(&witness->attach, exec, &wish, &why, &err), &err);
    CHECK_STR(told(witness), ""); /* nothing before it is ready */
    attach_go(&witness->attach);
}

static enum attach_why join_as(struct witness *witness, struct box_exec *exec,
                               enum attach_role role, bool take)
{
    struct attach_wish wish = { .role = role, .take = take, .from = ATTACH_POSITION };
    enum attach_why why;
    struct err err;

    CHECK_OK(attach_open(&witness->attach, exec, &wish, &why, &err), &err);
    attach_go(&witness->attach);
    return why;
}

static void leave(struct witness *witness)
{
    attach_close(&witness->attach);
    buf_free(&witness->told);
}

/* ---- a terminal ---- */

static uint32_t number;

static struct box_exec *terminal(struct box *box, const struct exec_spec *more)
{
    struct caller caller = caller_new();
    const char *argv[] = { "bash", NULL };
    struct exec_spec spec = *more;
    struct err err;

    spec.argv = argv;
    spec.tty = true;
    CHECK_OK(box_exec(box, &spec, &caller.op, &err), &err);
    CHECK(heard(INIT_EXEC, &number, NULL, 0));
    say(INIT_STARTED, number, &(struct init_started){ .pid = 7 }, sizeof(struct init_started),
        NULL);
    settle();
    CHECK(caller.done == 1 && !caller.failed);
    CHECK(box_exec_term(caller.op.exec) != NULL);
    return caller.op.exec;
}

static struct box_exec *plain_terminal(void)
{
    up(true);
    return terminal(made(), &(struct exec_spec){ 0 });
}

static void print(const char *text, uint64_t at)
{
    say_output(number, INIT_OUT, at, text);
    turn(10);
}

/* More than the spool keeps; returns the position after it. */
static uint64_t flood(uint64_t at, uint64_t bytes)
{
    static char piece[60001];

    memset(piece, 'x', sizeof(piece) - 1);
    for (uint64_t end = at + bytes; at < end; at += sizeof(piece) - 1) {
        say_output(number, INIT_OUT, at, piece);
        turn(0);
    }
    turn(10);
    return at;
}

/* ---- places ---- */

TEST(a_watcher_gets_every_byte_from_its_place_on_once)
{
    struct box_exec *exec = plain_terminal();
    struct witness all = witness_new("all"), some = witness_new("some"), late = witness_new("late");

    print("hello ", 0);
    join_at(&all, exec, ATTACH_POSITION, 0);
    CHECK_STR(told(&all), "hello ");
    print("big world", 6);
    CHECK_STR(told(&all), "hello big world");
    join_at(&some, exec, ATTACH_POSITION, 8);
    CHECK_STR(told(&some), "g world");
    join_at(&late, exec, ATTACH_POSITION, 15);
    CHECK_STR(told(&late), "");
    print("!", 15);
    CHECK_STR(told(&all), "hello big world!");
    CHECK_STR(told(&some), "g world!");
    CHECK_STR(told(&late), "!");
    leave(&all);
    leave(&some);
    leave(&late);
    down();
}

TEST(a_place_that_is_not_there_yet_is_refused)
{
    struct box_exec *exec = plain_terminal();
    struct witness witness = witness_new("me");
    struct attach_wish wish = { .from = ATTACH_POSITION, .place = 4 };
    enum attach_why why;
    struct err err = { 0 };

    print("abc", 0);
    CHECK(attach_open(&witness.attach, exec, &wish, &why, &err) < 0);
    CHECK_INT(err.code, ERR_RANGE);
    wish.place = 3;
    CHECK_OK(attach_open(&witness.attach, exec, &wish, &why, &err), &err);
    leave(&witness);
    down();
}

TEST(without_a_place_the_screen_comes_first)
{
    struct box_exec *exec = plain_terminal();
    struct witness witness = witness_new("me");

    print("abc", 0);
    join_at(&witness, exec, ATTACH_SCREEN, 0);
    CHECK_STR(told(&witness), "[key 3]");
    print("de", 3);
    CHECK_STR(told(&witness), "[key 3]de");
    leave(&witness);
    down();
}

TEST(what_is_no_longer_kept_is_a_gap_and_a_keyframe)
{
    struct box_exec *exec = plain_terminal();
    struct witness witness = witness_new("me");
    struct err err = { 0 };
    char want[64];

    print("first", 0);
    uint64_t end = flood(5, SPOOL_RING + 200000), frame;
    CHECK(term_find(box_exec_term(exec), 5, &frame, &err) < 0);
    CHECK_INT(err.code, ERR_GONE);
    join_at(&witness, exec, ATTACH_POSITION, 5);
    snprintf(want, sizeof(want), "[gap 5 %llu][key %llu]", (unsigned long long)end,
             (unsigned long long)end);
    CHECK_STR(told(&witness), want);
    print("last", end);
    CHECK(strstr(told(&witness), "last") != NULL);
    leave(&witness);
    down();
}

/* ---- frames ---- */

TEST(frames_are_numbered_and_sizes_are_among_them)
{
    struct box_exec *exec = plain_terminal();
    struct box_term *term = box_exec_term(exec);
    struct witness witness = witness_new("me");
    struct term_frame frame;
    struct err err = { 0 };

    print("abc", 0);
    CHECK_OK(box_exec_resize(exec, 30, 100, &err), &err);
    print("de", 3);
    CHECK_INT(term_frame(term, 0, &frame, &err), 1);
    CHECK(frame.kind == TERM_OUTPUT && frame.from == 0 && frame.to == 3);
    CHECK(frame.rows == TERM_ROWS && frame.cols == TERM_COLS);
    CHECK_INT(term_frame(term, 1, &frame, &err), 1);
    CHECK(frame.kind == TERM_RESIZE && frame.rows == 30 && frame.cols == 100);
    CHECK_INT(term_frame(term, 2, &frame, &err), 1);
    CHECK(frame.from == 3 && frame.to == 5 && frame.rows == 30);
    CHECK_INT(term_frame(term, 3, &frame, &err), 0);
    CHECK_INT(term_note(term), 3);
    join_at(&witness, exec, ATTACH_FRAME, 1);
    CHECK_STR(told(&witness), "[100x30]de");
    CHECK_INT(witness.last_frame, 3);
    leave(&witness);
    down();
}

TEST(a_large_piece_is_several_frames_at_the_limit)
{
    struct box_exec *exec = plain_terminal();
    struct term_frame frame;
    struct err err;
    uint64_t begin, end;

    static char piece[60001];
    memset(piece, 'x', sizeof(piece) - 1);
    print("a screen ", 0);
    say_output(number, INIT_OUT, 9, piece); /* two that come in one round */
    say_output(number, INIT_OUT, 60009, piece);
    turn(10);
    term_range(box_exec_term(exec), &begin, &end);
    CHECK_INT(begin, 0);
    for (uint64_t i = 0; i < end; i++) {
        CHECK_INT(term_frame(box_exec_term(exec), i, &frame, &err), 1);
        CHECK(frame.to - frame.from <= TERM_FRAME_MAX);
    }
    CHECK_INT(frame.to, 120009);
    down();
}

/* ---- slow watchers ---- */

TEST(a_watcher_that_wants_no_more_waits_alone)
{
    struct box_exec *exec = plain_terminal();
    struct witness slow = witness_new("slow"), quick = witness_new("quick");

    slow.takes = 1;
    join_at(&slow, exec, ATTACH_POSITION, 0);
    join_at(&quick, exec, ATTACH_POSITION, 0);
    print("a", 0);
    print("b", 1);
    CHECK_STR(told(&slow), "a");
    CHECK_STR(told(&quick), "ab");
    attach_drained(&slow.attach);
    CHECK_STR(told(&slow), "ab");
    leave(&slow);
    leave(&quick);
    down();
}

TEST(one_that_is_overtaken_by_the_ring_is_let_go_with_a_reason)
{
    struct box_exec *exec = plain_terminal();
    struct witness slow = witness_new("slow"), again = witness_new("slow");

    slow.takes = 1;
    join_at(&slow, exec, ATTACH_POSITION, 0);
    print("a", 0);
    uint64_t end = flood(1, SPOOL_RING + 200000);
    CHECK(!slow.lost); /* it is told when it could take more */
    attach_drained(&slow.attach);
    CHECK(slow.lost);
    CHECK_STR(told(&slow), "a");
    CHECK_INT(slow.attach.at, 1);
    CHECK_INT(term_viewers(box_exec_term(exec)), 0);
    join_at(&again, exec, ATTACH_POSITION, 1);
    CHECK(strncmp(told(&again), "[gap 1 ", 7) == 0);
    CHECK_INT(again.attach.at, end);
    leave(&slow);
    leave(&again);
    down();
}

/* ---- roles ---- */

TEST(one_controls_and_the_next_watches_until_it_takes_over)
{
    struct box_exec *exec = plain_terminal();
    struct witness one = witness_new("one"), two = witness_new("two");
    struct err err = { 0 };

    CHECK_INT(join_as(&one, exec, ATTACH_CONTROLLER, false), ATTACH_ASKED);
    CHECK_INT(one.attach.role, ATTACH_CONTROLLER);
    CHECK_INT(join_as(&two, exec, ATTACH_CONTROLLER, false), ATTACH_HELD);
    CHECK_INT(two.attach.role, ATTACH_OBSERVER);
    CHECK_INT(attach_input(&one.attach, STR("ls\n"), &err), 0);
    CHECK(heard(INIT_STDIN, NULL, NULL, 0));
    CHECK_INT(attach_input(&two.attach, STR("rm\n"), &err), -1);
    CHECK_INT(err.code, ERR_FORBIDDEN);
    CHECK(attach_resize(&two.attach, 10, 10, &err) < 0);
    CHECK(attach_signal(&two.attach, 9, true, &err) < 0);
    CHECK_INT(attach_control(&two.attach, false, &err), 0);
    CHECK_STR(told(&two), "[observer: held]");
    CHECK_STR(told(&one), "");
    forget_told(&two);
    CHECK_INT(attach_control(&two.attach, true, &err), 1);
    CHECK_STR(told(&one), "[observer: taken]");
    CHECK_STR(told(&two), "[controller: asked]");
    CHECK(attach_input(&one.attach, STR("ls\n"), &err) < 0);
    CHECK_INT(term_controllers(box_exec_term(exec)), 1);
    attach_release(&two.attach);
    CHECK_INT(attach_control(&one.attach, false, &err), 1);
    attach_close(&one.attach); /* who leaves gives it back */
    CHECK_INT(attach_control(&two.attach, false, &err), 1);
    CHECK(!heard(INIT_STDIN, NULL, NULL, 0));
    leave(&one);
    leave(&two);
    down();
}

TEST(joining_can_take_over_at_once)
{
    struct box_exec *exec = plain_terminal();
    struct witness one = witness_new("one"), two = witness_new("two");

    join_as(&one, exec, ATTACH_CONTROLLER, false);
    CHECK_INT(join_as(&two, exec, ATTACH_CONTROLLER, true), ATTACH_ASKED);
    CHECK_STR(told(&one), "[observer: taken]");
    leave(&one);
    leave(&two);
    down();
}

TEST(a_credential_that_may_only_look_never_controls)
{
    struct box_exec *exec = plain_terminal();
    struct witness witness = witness_new("me");
    struct attach_wish wish = { .role = ATTACH_CONTROLLER };
    enum attach_why why;
    struct err err = { 0 };

    witness.attach.may_control = false;
    CHECK(attach_open(&witness.attach, exec, &wish, &why, &err) < 0);
    CHECK_INT(err.code, ERR_FORBIDDEN);
    CHECK_INT(term_viewers(box_exec_term(exec)), 0);
    join_at(&witness, exec, ATTACH_POSITION, 0);
    CHECK(attach_control(&witness.attach, true, &err) < 0);
    CHECK_INT(err.code, ERR_FORBIDDEN);
    leave(&witness);
    down();
}

TEST(several_may_control_where_that_was_wished)
{
    up(true);
    struct box_exec *exec = terminal(made(), &(struct exec_spec){ .max_controllers = 2 });
    struct witness one = witness_new("one"), two = witness_new("two"), three = witness_new("3");
    struct err err;

    CHECK_INT(join_as(&one, exec, ATTACH_CONTROLLER, false), ATTACH_ASKED);
    CHECK_INT(join_as(&two, exec, ATTACH_CONTROLLER, false), ATTACH_ASKED);
    CHECK_INT(join_as(&three, exec, ATTACH_CONTROLLER, false), ATTACH_HELD);
    CHECK_INT(attach_input(&one.attach, STR("a"), &err), 0);
    CHECK_INT(attach_input(&two.attach, STR("b"), &err), 0);
    turn(5);
    CHECK_INT(attach_input(&one.attach, STR("a"), &err), 0);
    CHECK_INT(attach_control(&three.attach, true, &err), 1); /* from the one silent longest */
    CHECK_INT(one.attach.role, ATTACH_CONTROLLER);
    CHECK_INT(two.attach.role, ATTACH_OBSERVER);
    leave(&one);
    leave(&two);
    leave(&three);
    down();
}

TEST(a_lease_that_is_not_used_ends)
{
    up(true);
    struct box_exec *exec = terminal(made(), &(struct exec_spec){ .lease_ms = 20 });
    struct witness idle = witness_new("idle");

    join_as(&idle, exec, ATTACH_CONTROLLER, false);
    for (int i = 0; i < 200 && !idle.told.len; i++)
        turn(20);
    CHECK_STR(told(&idle), "[observer: idle]");
    CHECK_INT(term_controllers(box_exec_term(exec)), 0);
    leave(&idle);
    down();
}

TEST(typing_and_resizing_renew_a_lease)
{
    struct box_exec *exec = plain_terminal();
    struct witness witness = witness_new("me");
    struct err err;
    int64_t now = clock_mono_ms();

    join_as(&witness, exec, ATTACH_CONTROLLER, false);
    witness.attach.active_ms = now - TERM_LEASE_MS / 2;
    CHECK_INT(attach_input(&witness.attach, STR("k"), &err), 0);
    CHECK(witness.attach.active_ms >= now);
    witness.attach.active_ms = now - TERM_LEASE_MS / 2;
    CHECK_OK(attach_resize(&witness.attach, 5, 20, &err), &err);
    CHECK(witness.attach.active_ms >= now);
    leave(&witness);
    down();
}

/* ---- input ---- */

TEST(input_has_a_limit_and_waits_for_room)
{
    static char data[TERM_INPUT_MAX + 1];
    struct box_exec *exec = plain_terminal();
    struct witness witness = witness_new("me");
    struct err err = { 0 };
    int rc = 0;

    memset(data, 'k', sizeof(data));
    join_as(&witness, exec, ATTACH_CONTROLLER, false);
    CHECK(attach_input(&witness.attach, (struct str){ data, TERM_INPUT_MAX + 1 }, &err) < 0);
    CHECK_INT(err.code, ERR_LIMIT);
    for (int i = 0; i < 4 && rc == 0; i++)
        rc = attach_input(&witness.attach, (struct str){ data, TERM_INPUT_MAX }, &err);
    CHECK_INT(rc, 1); /* its init has taken nothing yet */
    leave(&witness);
    down();
}

TEST(a_size_of_nothing_is_refused)
{
    static const int64_t bad[][2] = {
        { 0, 80 }, { 24, 0 }, { -1, 80 }, { SCREEN_ROWS_MAX + 1, 80 }, { 24, SCREEN_COLS_MAX + 1 }
    };
    struct box_exec *exec = plain_terminal();
    struct witness witness = witness_new("me");
    struct err err = { 0 };

    join_as(&witness, exec, ATTACH_CONTROLLER, false);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        CHECK(attach_resize(&witness.attach, bad[i][0], bad[i][1], &err) < 0);
        CHECK_INT(err.code, ERR_INVALID);
    }
    CHECK(!heard(INIT_RESIZE, NULL, NULL, 0));
    CHECK_OK(attach_resize(&witness.attach, SCREEN_ROWS_MAX, TERM_COLS_MIN, &err), &err);
    CHECK(heard(INIT_RESIZE, NULL, NULL, 0));
    CHECK_STR(told(&witness), "[20x500]");
    leave(&witness);
    down();
}

/* ---- the end, and restarts ---- */

TEST(the_end_comes_after_the_last_byte)
{
    struct box_exec *exec = plain_terminal();
    struct witness witness = witness_new("me"), slow = witness_new("slow"),
                   late = witness_new("late");
    struct err err = { 0 };

    slow.takes = 1;
    join_as(&witness, exec, ATTACH_CONTROLLER, false);
    join_at(&slow, exec, ATTACH_POSITION, 0);
    print("a", 0);
    print("b", 1);
    say_exited(number, 3, 2, 0);
    tell_oom(0);
    settle();
    CHECK_STR(told(&witness), "ab");
    CHECK(witness.ended);
    CHECK(!slow.ended);
    attach_drained(&slow.attach);
    attach_drained(&slow.attach);
    CHECK(slow.ended);
    CHECK(attach_input(&witness.attach, STR("x"), &err) < 0);
    CHECK_INT(err.code, ERR_CONFLICT);
    join_at(&late, exec, ATTACH_POSITION, 0);
    CHECK_STR(told(&late), "ab");
    CHECK(late.ended);
    leave(&witness);
    leave(&slow);
    leave(&late);
    down();
}

static struct box_exec *after_restart(const char *id)
{
    struct box_exec *exec;
    struct box *box;
    struct err err;

    up(false);
    load_and_start();
    box = boxes_next(boxes, reach_all("default"), NULL);
    CHECK(box != NULL);
    CHECK_OK(box_exec_find(box, id, &exec, &err), &err);
    return exec;
}

TEST(after_a_restart_frames_sizes_and_screen_are_as_they_were)
{
    struct box_exec *exec = plain_terminal();
    struct witness witness = witness_new("me");
    struct term_frame frame;
    struct err err = { 0 };
    char id[ID_SIZE];
    uint64_t position;
    unsigned rows, cols;

    print("before ", 0);
    CHECK_OK(box_exec_resize(exec, 10, 40, &err), &err);
    print("after", 7);
    snprintf(id, sizeof(id), "%s", exec->id);
    down();

    exec = after_restart(id);
    struct box_term *term = box_exec_term(exec);
    term_size(term, &rows, &cols);
    CHECK(rows == 10 && cols == 40);
    CHECK_INT(term_frame(term, 1, &frame, &err), 1);
    CHECK(frame.kind == TERM_RESIZE);
    struct screen *screen = term_screen(term, &position, &err);
    CHECK(screen != NULL && position == 12);
    autobuf struct buf text = { 0 };
    screen_text(screen, &text);
    CHECK(strncmp(buf_cstr(&text), "before after\n", 13) == 0);
    CHECK(screen_rows(screen) == 10 && screen_cols(screen) == 40);
    join_at(&witness, exec, ATTACH_FRAME, 0);
    CHECK_STR(told(&witness), "before [40x10]after");
    leave(&witness);
    down();
}

/* What the program was typed since the last look; it takes all of it. */
static const char *typed(void)
{
    struct init_room room = { .taken = UINT64_MAX };
    static char got[64];

    memset(got, 0, sizeof(got));
    if (!heard(INIT_STDIN, NULL, got, sizeof(got) - 1))
        return "";
    say(INIT_STDIN_ROOM, number, &room, sizeof(room), NULL);
    turn(10);
    return got;
}

TEST(a_program_that_asks_its_terminal_is_answered_once)
{
    struct box_exec *exec = plain_terminal();
    struct box_term *term = box_exec_term(exec);
    struct witness watcher = witness_new("watcher");
    struct err err = { 0 };

    print("\033[6n", 0); /* nobody is there, and nothing was printed before */
    CHECK_STR(typed(), "\033[1;1R");
    join_as(&watcher, exec, ATTACH_OBSERVER, false);
    print("ab\033[6n", 4); /* who only watches is not listened to */
    CHECK_STR(typed(), "\033[1;3R");
    CHECK_INT(attach_control(&watcher.attach, false, &err), 1);
    print("\033[6n", 10); /* who types has a terminal that answers */
    CHECK_STR(typed(), "");
    leave(&watcher);
    screen_free(term->screen); /* it is made anew of all that was printed */
    term->screen = NULL;
    print("\033[c", 14);
    CHECK_STR(typed(), "\033[?1;2c");
    down();
}

TEST(bytes_that_no_frame_tells_of_after_a_kill_become_the_next_frame)
{
    struct box_exec *exec = plain_terminal();
    struct witness witness = witness_new("me");
    char id[ID_SIZE], name[SPOOL_NAME_SIZE];
    struct err err;

    print("abc", 0);
    snprintf(id, sizeof(id), "%s", exec->id);
    /* As a kill leaves it between the two files. */
    spool_name(name, exec->id, INIT_OUT);
    CHECK_OK(spool_add(&exec->spool[INIT_OUT], boxes->spool_dir, name, "def", 3, &err), &err);
    down();
    exec = after_restart(id);
    join_at(&witness, exec, ATTACH_FRAME, 1);
    CHECK_STR(told(&witness), "def");
    CHECK_INT(witness.last_frame, 1);
    leave(&witness);
    down();
}

TEST(a_screen_is_rebuilt_from_a_keyframe_and_little_more)
{
    struct box_exec *exec = plain_terminal();
    struct err err = { 0 };
    char id[ID_SIZE], name[SPOOL_NAME_SIZE + 8];
    uint64_t position;

    uint64_t end = flood(0, 3 * TERM_KEY_EVERY);
    print("\r\n", end);
    print("the end", end + 2);
    snprintf(id, sizeof(id), "%s", exec->id);
    /* What was printed long ago is unreadable: nobody reads it. */
    spool_name(name, exec->id, INIT_OUT);
    int fd = openat(boxes->spool_dir, name, O_RDWR | O_CLOEXEC);
    static char zeros[65536];
    for (off_t at = 4096; at < 4096 + TERM_KEY_EVERY; at += (off_t)sizeof(zeros))
        CHECK(pwrite(fd, zeros, sizeof(zeros), at) > 0);
    close(fd);
    autobuf struct buf before = { 0 }, after = { 0 };
    screen_text(term_screen(box_exec_term(exec), &position, &err), &before);
    down();
    exec = after_restart(id);
    struct screen *screen = term_screen(box_exec_term(exec), &position, &err);
    CHECK(screen != NULL);
    CHECK_INT(position, end + 9);
    screen_text(screen, &after);
    CHECK_STR(buf_cstr(&after), buf_cstr(&before));
    CHECK(strstr(buf_cstr(&after), "the end") != NULL);
    down();
}

TEST(what_is_forgotten_leaves_no_file_and_nobody_attached)
{
    struct box_exec *exec = plain_terminal();
    struct witness witness = witness_new("me");
    struct box *box = exec->box;
    char name[SPOOL_NAME_SIZE + 8];
    struct stat st;

    print("abc", 0);
    say_exited(number, 0, 3, 0);
    settle();
    join_at(&witness, exec, ATTACH_POSITION, 0);
    /* Who looks is noted, and the file is closed again. */
    CHECK_INT(term_note(box_exec_term(exec)), 1);
    CHECK_INT(exec->term->log.fd, -1);
    snprintf(name, sizeof(name), "%s.frm", exec->id);
    CHECK_INT(fstatat(boxes->spool_dir, name, &st, 0), 0);
    char key[SPOOL_NAME_SIZE + 8];
    snprintf(key, sizeof(key), "%s.key", exec->id);
    CHECK_INT(fstatat(boxes->spool_dir, key, &st, 0), 0);
    struct caller caller = caller_new();
    struct err err;
    CHECK_OK(box_delete(box, &caller.op, &err), &err);
    answer_with(&asked[asked_count - 1], 0, false);
    settle();
    CHECK(witness.lost);
    CHECK(fstatat(boxes->spool_dir, name, &st, 0) < 0);
    CHECK(fstatat(boxes->spool_dir, key, &st, 0) < 0);
    leave(&witness);
    down();
}

/* ---- names and limits ---- */

static void check_name_is_free(bool killed)
{
    struct caller caller = caller_new();
    const char *argv[] = { "sh", NULL };
    struct exec_spec spec = { .argv = argv, .tty = true, .name = "main" };
    struct err err = { 0 };

    up(true);
    struct box *box = made();
    struct box_exec *exec = terminal(box, &(struct exec_spec){ .name = "main" });
    CHECK(box_exec(box, &spec, &caller.op, &err) < 0);
    CHECK_INT(err.code, ERR_CONFLICT);
    CHECK(strstr(err.msg, exec->id) != NULL && box_exec_stays(exec));
    if (killed) {
        CHECK_OK(box_exec_kill(exec, "somebody", &err), &err);
        CHECK(!box_exec_stays(exec) && !box_exec_ended(exec)); /* it takes a moment to go */
    } else {
        say_exited(number, 0, 0, 0);
        settle();
    }
    CHECK_OK(box_exec(box, &spec, &caller.op, &err), &err);
    spec.tty = false;
    spec.name = NULL;
    spec.lease_ms = 1;
    CHECK(box_exec(box, &spec, &caller.op, &err) < 0); /* only terminals have leases */
    CHECK_STR(err.field, "lease_ms");
    down();
}

TEST(a_name_is_free_again_when_its_terminal_has_ended)
{
    check_name_is_free(false);
}

TEST(a_name_is_free_again_when_its_terminal_was_killed)
{
    check_name_is_free(true);
}

TEST(so_many_may_watch_and_no_more)
{
    static struct witness crowd[TERM_VIEWERS_MAX + 1];
    struct box_exec *exec = plain_terminal();
    struct attach_wish wish = { .from = ATTACH_POSITION };
    enum attach_why why;
    struct err err = { 0 };

    for (size_t i = 0; i < TERM_VIEWERS_MAX; i++) {
        crowd[i] = witness_new("x");
        CHECK_OK(attach_open(&crowd[i].attach, exec, &wish, &why, &err), &err);
    }
    crowd[TERM_VIEWERS_MAX] = witness_new("x");
    CHECK(attach_open(&crowd[TERM_VIEWERS_MAX].attach, exec, &wish, &why, &err) < 0);
    CHECK_INT(err.code, ERR_RATE);
    for (size_t i = 0; i < TERM_VIEWERS_MAX; i++)
        leave(&crowd[i]);
    down();
}
