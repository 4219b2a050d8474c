/*
 * pace: a reader that must have every byte gets every byte, whoever is slow, breaks off, comes back
 * or is killed; and the command waits no longer than it has to.
 */
#include "base/test.h"
#include "box/box_rig.h"

#define WORD sizeof(uint64_t)
#define TOTAL ((uint64_t)SPOOL_RING * 5 / 2)
#define LOST_MAX (8u << 20) /* bytes on their way that a broken connection loses */
#define HOLDERS 3

/* ---- an init that keeps to its window, without its socket's pace ---- */

struct source {
    struct box_exec *exec;
    uint32_t number;
    uint64_t begin[INIT_STREAMS]; /* told to be dropped */
    uint64_t sent[INIT_STREAMS];  /* on this connection */
    uint64_t made[INIT_STREAMS];  /* ever */
};

static void hear(struct source *source)
{
    static char frame[70000];
    struct init_head head;
    uint64_t position[INIT_STREAMS];
    ssize_t got;

    while ((got = recv(init_end, frame, sizeof(frame), MSG_DONTWAIT)) > 0) {
        memcpy(&head, frame, sizeof(head));
        if ((head.type != INIT_ACK && head.type != INIT_ATTACH) || head.exec != source->number)
            continue;
        memcpy(position, frame + sizeof(head), sizeof(position));
        for (unsigned s = 0; s < INIT_STREAMS; s++) {
            CHECK(position[s] <= source->made[s]);
            source->begin[s] = MAX(source->begin[s], position[s]);
            source->sent[s] = head.type == INIT_ATTACH ? source->begin[s]
                                                       : MAX(source->sent[s], source->begin[s]);
        }
    }
}

/* The word at a position is the position, and the stream in its highest bit. */
static uint64_t word_at(unsigned stream, uint64_t at)
{
    return at / WORD | (uint64_t)stream << 63;
}

/* Sends what the window allows of `want` bytes; how many. */
static size_t produce(struct source *source, unsigned stream, size_t want)
{
    static uint64_t words[32768 / WORD];
    uint64_t at = source->sent[stream];
    size_t len = (size_t)MIN((uint64_t)MIN(want, sizeof(words)) & ~(WORD - 1),
                             MIN(source->begin[stream] + INIT_RING_SIZE, TOTAL) - at);
    struct init_output head = { .stream = stream, .position = at };

    for (size_t i = 0; i < len / WORD; i++)
        words[i] = word_at(stream, at + i * WORD);
    if (len)
        exec_output(source->exec, &head, (struct str){ (char *)words, len });
    exec_acknowledge(source->exec);
    source->sent[stream] += len;
    source->made[stream] = MAX(source->made[stream], source->sent[stream]);
    hear(source);
    return len;
}

/* ---- readers ---- */

struct holder {
    struct box_reader reader;
    bool attached;
    uint64_t had[INIT_STREAMS]; /* what the other end of its connection surely has */
};

static void on_more(struct box_reader *reader)
{
    (void)reader;
}

static void on_gone(struct box_reader *reader)
{
    container_of(reader, struct holder, reader)->attached = false;
}

static void attach(struct holder *holder, struct box_exec *exec)
{
    holder->reader = (struct box_reader){ .more = on_more, .gone = on_gone, .pace.holds = true };
    memcpy(holder->reader.pace.at, holder->had, sizeof(holder->had));
    holder->attached = true;
    box_exec_follow(exec, &holder->reader);
}

static void read_some(struct holder *holder, struct box_exec *exec, unsigned stream, size_t want)
{
    static uint64_t words[65536 / WORD];
    uint64_t at = holder->reader.pace.at[stream];
    struct err err = { 0 };
    ssize_t got =
        box_exec_read(exec, stream, at, words, MIN(want, sizeof(words)) & ~(WORD - 1), &err);

    if (got < 0)
        test_fail(__FILE__, __LINE__, "a holder at %llu was told: %s", (unsigned long long)at,
                  err.msg);
    for (size_t i = 0; i < (size_t)got / WORD; i++)
        CHECK(words[i] == word_at(stream, at + i * WORD));
    at += (uint64_t)got;
    if (at > LOST_MAX)
        holder->had[stream] = MAX(holder->had[stream], at - LOST_MAX);
    box_exec_advance(&holder->reader, stream, at);
}

static void break_off(struct holder *holder)
{
    for (unsigned s = 0; s < INIT_STREAMS; s++)
        holder->had[s] +=
            test_rand((uint32_t)(holder->reader.pace.at[s] - holder->had[s] + 1)) & ~(WORD - 1);
    box_exec_unfollow(&holder->reader);
    holder->attached = false;
}

/* We are killed: its connection breaks with us, and it is there again at once. */
static void kill_and_return(struct source *source, struct holder *holders, const char *box)
{
    for (size_t i = 0; i < HOLDERS; i++)
        if (holders[i].attached)
            break_off(&holders[i]);
    again(box);
    struct init_listed row = { .exec = source->number, .running = 1 };
    CHECK_INT(asked[1].verb, WIRE_BOX_OPEN);
    answer_with(&asked[1], 0, true);
    turn(5);
    CHECK_INT(asked[asked_count - 1].verb, WIRE_BOX_THAW);
    answer_with(&asked[asked_count - 1], 0, false);
    say(INIT_READY, 0, &(struct init_ready){ .version = INIT_VERSION, .execs = 1 },
        sizeof(struct init_ready), NULL);
    say(INIT_LISTED, 0, &row, sizeof(row), NULL);
    turn(5);
    source->exec = box_exec_next(boxes_next(boxes, reach_all("default"), NULL), NULL);
    CHECK(source->exec != NULL);
    hear(source);
}

static bool all_read(const struct holder *holders)
{
    for (size_t i = 0; i < HOLDERS; i++)
        for (unsigned s = 0; s < INIT_STREAMS; s++)
            if (!holders[i].attached || holders[i].reader.pace.at[s] < TOTAL)
                return false;
    return true;
}

static uint64_t slowest_of(const struct holder *holders, unsigned stream)
{
    uint64_t least = UINT64_MAX;

    for (size_t i = 0; i < HOLDERS; i++)
        least = MIN(least, holders[i].attached ? holders[i].reader.pace.at[stream]
                                               : holders[i].had[stream]);
    return least;
}

/* ---- the tests ---- */

static struct box_exec *held(struct box *box, uint32_t *number)
{
    struct caller caller = caller_new();
    const char *argv[] = { "yes", NULL };
    struct exec_spec spec = { .argv = argv, .hold = true };
    struct err err;

    CHECK_OK(box_exec(box, &spec, &caller.op, &err), &err);
    CHECK(heard(INIT_EXEC, number, NULL, 0));
    say(INIT_STARTED, *number, &(struct init_started){ .pid = 7 }, sizeof(struct init_started),
        NULL);
    settle();
    CHECK_INT(caller.done, 1);
    return caller.op.exec;
}

TEST(holders_get_every_byte_whatever_breaks)
{
    struct source source = { 0 };
    struct holder holders[HOLDERS] = { 0 };
    char id[ID_SIZE];

    up(true);
    struct box *box = made();
    snprintf(id, sizeof(id), "%s", box->id);
    source.exec = held(box, &source.number);
    for (size_t i = 0; i < HOLDERS; i++)
        attach(&holders[i], source.exec);
    while (!all_read(holders)) {
        struct holder *holder = &holders[test_rand(HOLDERS)];
        unsigned stream = test_rand(4) == 0 ? INIT_ERR : INIT_OUT;
        unsigned what = test_rand(2000);

        if (what == 0)
            kill_and_return(&source, holders, id);
        else if (what < 10 && holder->attached)
            break_off(holder);
        else if (!holder->attached)
            attach(holder, source.exec);
        else if (what < 1000)
            read_some(holder, source.exec, stream, test_rand(65536) + 8);
        else if (produce(&source, stream, 65536) == 0 && source.sent[stream] < TOTAL &&
                 !source.exec->pace.away)
            /* It is held back: a holder is far behind. */
            CHECK(source.sent[stream] - slowest_of(holders, stream) + LOST_MAX >= EXEC_AHEAD);
    }
    down();
}

TEST(a_holder_that_reads_nothing_stops_the_command_and_costs_a_ring)
{
    struct source source = { 0 };
    struct holder holder = { 0 };

    up(true);
    source.exec = held(made(), &source.number);
    attach(&holder, source.exec);
    for (int i = 0; i < 4096; i++)
        (void)produce(&source, INIT_OUT, 65536);
    CHECK(source.sent[INIT_OUT] == (uint64_t)EXEC_AHEAD + INIT_RING_SIZE);
    CHECK(!pace_held(&source.exec->pace));    /* it is there, and may take its time */
    while (produce(&source, INIT_ERR, 65536)) /* each stream has its own room */
        ;
    CHECK(source.sent[INIT_ERR] == (uint64_t)EXEC_AHEAD + INIT_RING_SIZE);
    read_some(&holder, source.exec, INIT_OUT, 65536);
    read_some(&holder, source.exec, INIT_OUT, 65536);
    hear(&source);
    CHECK(produce(&source, INIT_OUT, 65536) > 0);
    down();
}

TEST(an_init_that_sends_beyond_its_room_is_condemned)
{
    struct init_output head = { .stream = INIT_OUT };
    struct source source = { 0 };
    struct holder holder = { 0 };

    up(true);
    struct box *box = made();
    source.exec = held(box, &source.number);
    attach(&holder, source.exec);
    while (produce(&source, INIT_OUT, 65536))
        ;
    uint64_t room = source.begin[INIT_OUT] + INIT_RING_ENDED;
    while (source.sent[INIT_OUT] < room) { /* what an ended command left in its pipe */
        static const char rest[32768];

        head.position = source.sent[INIT_OUT];
        exec_output(source.exec, &head, (struct str){ rest, sizeof(rest) });
        source.sent[INIT_OUT] += sizeof(rest);
    }
    turn(20);
    CHECK(asked[asked_count - 1].verb != WIRE_BOX_DESTROY);
    head.position = room;
    exec_output(source.exec, &head, STR("x"));
    turn(20);
    CHECK_INT(asked[asked_count - 1].verb, WIRE_BOX_DESTROY);
    down();
}

static int waited;

static void on_wait(struct box_wait *wait)
{
    (void)wait;
    waited++;
}

TEST(a_reader_that_stays_away_is_waited_for_and_then_given_up)
{
    struct box_wait wait = { .done = on_wait, .till_held = true };
    struct box_wait patient = { .done = on_wait };
    struct source source = { 0 };

    up(true);
    boxes->away_ms = 200;
    source.exec = held(made(), &source.number);
    waited = 0;
    box_exec_wait(source.exec, 60000, &wait);
    box_exec_wait(source.exec, 60000, &patient);
    turn(300);
    CHECK_INT(waited, 0); /* nothing is held back yet, so no time runs */
    while (produce(&source, INIT_OUT, 65536))
        ;
    CHECK(pace_held(&source.exec->pace));
    turn(20);
    CHECK_INT(waited, 1); /* who asked for it is told, and nobody else */
    CHECK(produce(&source, INIT_OUT, 65536) == 0);
    turn(300);
    hear(&source);
    CHECK(!pace_held(&source.exec->pace));
    for (int i = 0; i < 3000; i++)
        CHECK(produce(&source, INIT_OUT, 32768) > 0);
    box_exec_unwait(&patient);
    down();
}

TEST(a_reader_that_comes_in_time_stops_the_clock)
{
    struct source source = { 0 };
    struct holder holder = { 0 };

    up(true);
    boxes->away_ms = 200;
    source.exec = held(made(), &source.number);
    while (produce(&source, INIT_OUT, 65536))
        ;
    attach(&holder, source.exec);
    CHECK(!pace_held(&source.exec->pace));
    turn(300);
    hear(&source);
    CHECK(produce(&source, INIT_OUT, 65536) == 0);
    for (uint64_t at = 0; at < source.sent[INIT_OUT]; at = holder.reader.pace.at[INIT_OUT])
        read_some(&holder, source.exec, INIT_OUT, 65536);
    hear(&source);
    CHECK(produce(&source, INIT_OUT, 65536) > 0);
    holder.reader.pace.holds = false; /* it will not come back */
    box_exec_unfollow(&holder.reader);
    for (int i = 0; i < 3000; i++)
        CHECK(produce(&source, INIT_OUT, 32768) > 0);
    down();
}

TEST(a_command_without_holders_is_never_held_back)
{
    struct box_reader viewer = { .more = on_more, .gone = on_gone };
    struct source source = { 0 };
    uint64_t begin, end;

    up(true);
    source.exec = started(made(), &source.number);
    box_exec_follow(source.exec, &viewer);
    while (source.sent[INIT_OUT] < TOTAL)
        CHECK(produce(&source, INIT_OUT, 65536) > 0);
    box_exec_range(source.exec, INIT_OUT, &begin, &end);
    CHECK(begin > 0 && end == TOTAL);
    box_exec_unfollow(&viewer);
    down();
}
