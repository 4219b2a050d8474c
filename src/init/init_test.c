/*
 * init: a seeded random walk against a naive model of its promise. Commands print and end,
 * connections break at any moment, acknowledgements come late or not at all: every byte arrives
 * exactly once and in order, the end is told with the right positions, and input is never taken
 * beyond what was promised, and goes on behind a break where it was.
 */
#include "init/rig.h"

#include <poll.h>
#include <termios.h>

#include "base/test.h"

#define COMMANDS 12

/* What the api knows, and what the command did. */
struct model {
    uint32_t id;
    bool started, dead, exited, gone;
    uint64_t wrote[2], got[2];
    uint64_t in_sent, in_read;
    bool no_input;
    bool in_wait;   /* sent, and no room told yet */
    bool in_unsure; /* the connection was lost with what was sent: a list tells how far it is */
};

static struct model models[COMMANDS];
static uint32_t next_id = 1;

static unsigned char byte_at(uint32_t id, unsigned stream, uint64_t position)
{
    return (unsigned char)(position * 31 + position / 251 + id * 7 + stream);
}

static void tell(uint16_t type, uint32_t exec, const void *fixed, size_t fixed_len,
                 const void *more_, size_t more_len)
{
    static char data[INIT_FRAME_MAX];
    struct init_head head = { INIT_MAGIC, type, 0, exec, (uint32_t)(fixed_len + more_len) };

    memcpy(data, &head, sizeof(head));
    if (fixed_len)
        memcpy(data + sizeof(head), fixed, fixed_len);
    if (more_len)
        memcpy(data + sizeof(head) + fixed_len, more_, more_len);
    /* A full socket loses it: as good as a slow api. */
    (void)!send(rig_end, data, sizeof(head) + head.len, MSG_NOSIGNAL);
}

static struct model *model_of(uint32_t id)
{
    for (int i = 0; i < COMMANDS; i++)
        if (models[i].id == id)
            return &models[i];
    return NULL;
}

static void hear_output(struct model *model, const char *body, size_t len)
{
    struct init_output head;

    memcpy(&head, body, sizeof(head));
    CHECK(head.stream < 2);
    CHECK(head.position <= model->got[head.stream]); /* nothing is left out */
    for (size_t i = sizeof(head); i < len; i++) {
        uint64_t position = head.position + i - sizeof(head);

        CHECK_INT((unsigned char)body[i], byte_at(model->id, head.stream, position));
        if (position == model->got[head.stream])
            model->got[head.stream]++;
    }
    CHECK(model->got[head.stream] <= model->wrote[head.stream]);
}

static void hear_exit(struct model *model, const char *body)
{
    struct init_exited end;

    memcpy(&end, body, sizeof(end));
    CHECK(model->dead);
    CHECK_INT(end.code, 7);
    CHECK_INT(end.end[0], model->wrote[0]);
    CHECK_INT(end.end[1], model->wrote[1]);
    model->exited = model->got[0] == end.end[0] && model->got[1] == end.end[1];
}

static unsigned places; /* where input went on behind what a connection had lost */

static void hear_list(const char *body, size_t len)
{
    for (size_t at = 0; at < len; at += sizeof(struct init_listed)) {
        struct init_listed row;

        memcpy(&row, body + at, sizeof(row));
        struct model *model = model_of(row.exec);
        if (!model || !model->in_unsure)
            continue;
        CHECK(row.taken >= model->in_read && row.taken <= model->in_sent);
        places += row.taken < model->in_sent;
        model->in_sent = row.taken;
        model->in_unsure = model->in_wait = false;
    }
}

static void hear_one(const char *data, size_t len)
{
    struct init_head head;
    struct init_started started;

    CHECK(init_frame_ok(data, len, false));
    memcpy(&head, data, sizeof(head));
    const char *body = data + sizeof(head);
    struct model *model = model_of(head.exec);
    switch (head.type) {
    case INIT_STARTED:
        memcpy(&started, body, sizeof(started));
        CHECK(started.pid > 0);
        break;
    case INIT_OUTPUT:
        CHECK(model);
        hear_output(model, body, head.len);
        break;
    case INIT_EXITED:
        CHECK(model);
        hear_exit(model, body);
        break;
    case INIT_STDIN_ROOM: {
        struct init_room room;

        memcpy(&room, body, sizeof(room));
        if (model && !model->in_unsure) {
            CHECK(room.taken <= model->in_sent);
            model->in_wait = room.taken < model->in_sent;
        }
        break;
    }
    case INIT_ERROR: {
        struct init_error error;

        memcpy(&error, body, sizeof(error));
        CHECK(error.error == EPIPE || error.error == EBUSY || error.error == ENOENT);
        if (model && error.type == INIT_STDIN)
            model->in_wait = true; /* closed */
        break;
    }
    case INIT_LISTED:
        hear_list(body, head.len);
        break;
    default:
        break;
    }
}

static void hear(unsigned most)
{
    static char data[INIT_FRAME_MAX + 1];
    ssize_t got;

    while (most-- && (got = recv(rig_end, data, sizeof(data), MSG_DONTWAIT)) > 0)
        hear_one(data, (size_t)got);
}

static void start_as(struct model *model, uint32_t flags)
{
    struct init_exec wish = { .flags = flags, .argc = 1, .text_len = 4 };

    *model = (struct model){ .id = next_id++, .started = true, .no_input = !flags };
    tell(INIT_EXEC, model->id, &wish, sizeof(wish), "x\0/", 4);
    rig_turn();
    if (!exec_find(model->id)) /* the socket was full */
        *model = (struct model){ 0 };
}

static void start_one(struct model *model)
{
    start_as(model, INIT_STDIN_OPEN);
}

static void print_some(struct model *model, struct exec *exec)
{
    static unsigned char data[100000];
    unsigned stream = test_rand(2);
    size_t len = 1 + test_rand(test_rand(3) ? 3000 : sizeof(data) - 1);

    for (size_t i = 0; i < len; i++)
        data[i] = byte_at(model->id, stream, model->wrote[stream] + i);
    ssize_t put = write(rig_child(exec)->fd[1 + stream], data, len);
    if (put > 0)
        model->wrote[stream] += (uint64_t)put;
}

static void type_some(struct model *model)
{
    static unsigned char data[50000];
    size_t len = 1 + test_rand(sizeof(data) - 1);

    if (model->in_wait || model->in_unsure || model->no_input)
        return;
    for (size_t i = 0; i < len; i++)
        data[i] = byte_at(model->id, 2, model->in_sent + i);
    struct init_head head = { INIT_MAGIC, INIT_STDIN, 0, model->id, (uint32_t)len };
    struct iovec parts[2] = { { &head, sizeof(head) }, { data, len } };
    if (sendmsg(rig_end, &(struct msghdr){ .msg_iov = parts, .msg_iovlen = 2 }, MSG_NOSIGNAL) > 0) {
        model->in_sent += len;
        model->in_wait = true;
    }
}

static void read_input(struct model *model, struct exec *exec)
{
    static unsigned char data[30000];
    ssize_t got = read(rig_child(exec)->fd[0], data, 1 + test_rand(sizeof(data) - 1));

    CHECK(got <= 0 || !model->no_input);
    for (ssize_t i = 0; i < got; i++)
        CHECK_INT(data[i], byte_at(model->id, 2, model->in_read + (uint64_t)i));
    model->in_read += got > 0 ? (uint64_t)got : 0;
    CHECK(model->in_read <= model->in_sent);
}

static void reconnect(void)
{
    rig_connect();
    for (int i = 0; i < COMMANDS; i++) {
        struct model *model = &models[i];
        struct init_attach attach = { { model->got[0], model->got[1] } };

        model->in_wait = model->in_unsure = true; /* what was on its way may be lost */
        if (model->started)
            tell(INIT_ATTACH, model->id, &attach, sizeof(attach), NULL, 0);
    }
    tell(INIT_LIST, 0, NULL, 0, NULL, 0);
}

static void act(struct model *model)
{
    struct exec *exec = exec_find(model->id);
    struct init_ack ack = { { model->got[0], model->got[1] } };

    if (!model->started) { /* without input it may be the process that was made ahead */
        start_as(model, test_rand(2) ? INIT_STDIN_OPEN : 0);
        return;
    }
    if (!exec) { /* forgotten */
        CHECK(model->exited);
        *model = (struct model){ 0 };
        return;
    }
    switch (test_rand(12)) {
    case 0:
        if (!model->dead && test_rand(6) == 0) {
            model->dead = true;
            rig_exit(exec, 7 << 8);
        }
        break;
    case 1:
    case 2:
    case 3:
        if (!model->dead)
            print_some(model, exec);
        break;
    case 4:
        if (!model->dead)
            type_some(model);
        break;
    case 5:
    case 6:
        if (!model->dead)
            read_input(model, exec);
        break;
    case 7:
        if (model->exited || test_rand(20) == 0)
            tell(INIT_FORGET, model->id, NULL, 0, NULL, 0);
        break;
    default:
        tell(INIT_ACK, model->id, &ack, sizeof(ack), NULL, 0);
    }
    for (int s = 0; s < INIT_STREAMS; s++)
        CHECK(exec->out[s].end - exec->out[s].begin <= INIT_RING_SIZE);
    CHECK(exec->in_len <= INIT_STDIN_QUEUE);
}

TEST(nothing_is_lost_or_doubled)
{
    uint64_t bytes = 0;

    rig_begin();
    for (int step = 0; step < 60000; step++) {
        struct model *model = &models[test_rand(COMMANDS)];

        bytes += model->got[0];
        act(model);
        if (rig_count > RIG_CHILDREN - COMMANDS)
            break;
        if (test_rand(400) == 0)
            reconnect();
        if (test_rand(1000) == 0)
            spawn_dismiss();
        if (test_rand(3) == 0)
            rig_now += test_rand(40);
        rig_turn();
        hear(test_rand(30));
    }
    /* Then everything that was printed arrives. */
    for (int i = 0; i < COMMANDS; i++) {
        struct exec *exec = exec_find(models[i].id);

        if (exec && !models[i].dead) {
            models[i].dead = true;
            rig_exit(exec, 7 << 8);
        }
    }
    for (int round = 0; round < 2000; round++) {
        for (int i = 0; i < COMMANDS; i++) {
            struct init_ack ack = { { models[i].got[0], models[i].got[1] } };

            if (models[i].started)
                tell(INIT_ACK, models[i].id, &ack, sizeof(ack), NULL, 0);
        }
        rig_now += 10;
        rig_turn();
        hear(1000);
    }
    for (int i = 0; i < COMMANDS; i++)
        if (models[i].started && exec_find(models[i].id))
            CHECK(models[i].exited && models[i].got[0] == models[i].wrote[0] &&
                  models[i].got[1] == models[i].wrote[1]);
    CHECK(bytes > 0 && places > 0 && rig_used > 0);
    rig_clear();
}

/*
 * The pipes of a process that was made ahead are its own: what another command prints would come
 * out of them, and its end would never be seen.
 */
TEST(who_cannot_be_the_process_made_ahead_has_pipes_of_its_own)
{
    rig_begin();
    has_run = spare_due = false; /* as if nothing had run */
    for (int i = 0; i < 2; i++) {
        CHECK(!spawn_spare());
        start_as(&models[i], 0);
        models[i].dead = true;
        rig_exit(exec_find(models[i].id), 7 << 8);
        for (int round = 0; round < 5; round++) /* one in which nothing happens among them */
            rig_turn();
    }
    CHECK(spawn_spare());
    unsigned before = rig_used;
    start_one(&models[2]);
    CHECK(spawn_spare() && rig_used == before);
    struct exec *other = exec_find(models[2].id);
    print_some(&models[2], other);
    models[2].dead = true;
    rig_exit(other, 7 << 8);
    for (int i = 0; i < 5; i++)
        rig_turn();
    hear(100);
    CHECK(models[2].exited && other->out[INIT_OUT].fd < 0 && other->out[INIT_ERR].fd < 0);
    start_as(&models[3], 0);
    CHECK(!spawn_spare() && rig_used == before + 1);
    models[3].dead = true;
    rig_exit(exec_find(models[3].id), 7 << 8);
    for (int i = 0; i < 5; i++)
        rig_turn();
    hear(100);
    CHECK(models[3].exited);
    /* Nobody waits for ever for what does not come. */
    CHECK(spawn_spare());
    rig_now += 59990;
    rig_turn();
    CHECK(spawn_spare());
    rig_now += 10;
    rig_turn();
    CHECK(!spawn_spare());
    rig_clear();
    memset(models, 0, sizeof(models));
}

/* It has ended long ago, and all that time nobody took what it had printed. */
TEST(what_waits_in_the_pipes_when_a_command_ends_is_told)
{
    struct init_ack ack = { 0 };

    rig_begin();
    start_one(&models[0]);
    struct exec *exec = exec_find(models[0].id);
    CHECK(exec);
    for (uint64_t before = 1; before != models[0].wrote[0] + models[0].wrote[1];) {
        before = models[0].wrote[0] + models[0].wrote[1];
        for (int i = 0; i < 64; i++)
            print_some(&models[0], exec);
        rig_turn();
    }
    models[0].dead = true;
    rig_exit(exec, 7 << 8);
    rig_now += 60000;
    for (int i = 0; i < 10000 && !models[0].exited; i++) {
        hear(100);
        memcpy(ack.position, models[0].got, sizeof(ack.position));
        tell(INIT_ACK, models[0].id, &ack, sizeof(ack), NULL, 0);
        link_readable(); /* and the pipes' turn has not come yet */
        link_flush();
    }
    CHECK(models[0].exited);
    models[0] = (struct model){ 0 };
    rig_clear();
}

TEST(a_frame_of_nobody_ends_the_connection_and_nothing_else)
{
    struct init_head head = { 0x12345678, INIT_PING, 0, 0, 0 };

    rig_begin();
    memset(models, 0, sizeof(models));
    start_one(&models[0]);
    CHECK(send(rig_end, &head, sizeof(head), 0) > 0);
    rig_turn();
    CHECK_INT(link_fd, -1);
    CHECK(exec_find(models[0].id));
    rig_connect();
    CHECK(link_fd >= 0);
    rig_clear();
}

TEST(commands_are_bounded)
{
    rig_begin();
    memset(models, 0, sizeof(models));
    for (uint32_t i = 1; i <= INIT_EXECS_MAX + 1; i++) {
        struct init_exec wish = { .argc = 1, .text_len = 4 };
        struct init_started answer;

        exec_start(100000 + i, &wish, "x\0/", 4, -1, &answer);
        CHECK((answer.pid > 0) == (i <= INIT_EXECS_MAX));
        if (i == INIT_EXECS_MAX + 1)
            CHECK(answer.error == EAGAIN && answer.step == INIT_STEP_LIMIT);
    }
    rig_clear();
}

/* Rules about files: as many as there may be, one more, and what is none. */
TEST(rules_about_files_are_bounded_and_whole)
{
    static const struct {
        const char *rule;
        bool ok;
    } cases[] = { { "r/", true },   { "W/a/b", true }, { "w/x", true }, { "R/x", true },
                  { "", false },    { "r", false },    { "/x", false }, { "rx", false },
                  { "q/x", false }, { "r./x", false } };
    static char data[4096];
    struct {
        struct init_head head;
        struct init_exec exec;
    } sent = { { INIT_MAGIC, INIT_EXEC, 0, 1, sizeof(sent.exec) }, { .argc = 1 } };
    struct init_started answer;

    rig_begin();
    sent.exec.filec = INIT_FILES_MAX;
    CHECK(init_frame_ok(&sent, sizeof(sent), true));
    sent.exec.flags = INIT_BUILTIN;
    CHECK(!init_frame_ok(&sent, sizeof(sent), true));
    sent.exec.flags = 0;
    sent.exec.filec++;
    CHECK(!init_frame_ok(&sent, sizeof(sent), true));
    for (uint32_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct init_exec wish = { .argc = 1, .filec = 1 };
        int len = snprintf(data, sizeof(data), "x%c%s%c/%c", 0, cases[i].rule, 0, 0);

        wish.text_len = (uint32_t)len;
        exec_start(200000 + i, &wish, data, (size_t)len, -1, &answer);
        CHECK((answer.pid > 0) == cases[i].ok);
        wish.filec = 2; /* the last would be the directory, and that be missing */
        exec_start(300000 + i, &wish, data, (size_t)len, -1, &answer);
        CHECK(answer.pid == 0 && answer.error == EINVAL && answer.step == INIT_STEP_TEXT);
    }
    rig_clear();
}

/* What only somebody hostile, or out of step, would say. */
TEST(positions_and_input_beyond_what_is_there_are_refused)
{
    static char data[INIT_FRAME_MAX - sizeof(struct init_head)];
    struct init_ack ack = { { 11, 0 } };
    int refused = 0;

    rig_begin();
    memset(models, 0, sizeof(models));
    start_one(&models[0]);
    struct exec *exec = exec_find(models[0].id);
    CHECK(exec);
    CHECK(write(rig_child(exec)->fd[1], "0123456789", 10) == 10);
    rig_turn();
    tell(INIT_ACK, exec->id, &ack, sizeof(ack), NULL, 0);
    rig_turn();
    CHECK(exec->out[0].begin == 0 && exec->out[0].end == 10);
    for (int i = 0; i < 12 && !refused; i++) {
        tell(INIT_STDIN, exec->id, NULL, 0, data, sizeof(data));
        rig_turn();
        CHECK(exec->in_len <= INIT_STDIN_QUEUE);
        char answer[1024];
        ssize_t got;
        while ((got = recv(rig_end, answer, sizeof(answer), MSG_DONTWAIT)) > 0) {
            struct init_head head;
            struct init_error error;

            memcpy(&head, answer, sizeof(head));
            memcpy(&error, answer + sizeof(head), sizeof(error));
            refused += head.type == INIT_ERROR && error.error == EAGAIN;
        }
    }
    CHECK(refused);
    rig_clear();
}

/* The bytes of output that have arrived, over all frames. */
static size_t heard_bytes(void)
{
    static char data[INIT_FRAME_MAX];
    size_t bytes = 0;
    ssize_t got;

    while ((got = recv(rig_end, data, sizeof(data), MSG_DONTWAIT)) > 0) {
        struct init_head head;

        memcpy(&head, data, sizeof(head));
        if (head.type == INIT_OUTPUT)
            bytes += head.len - sizeof(struct init_output);
    }
    return bytes;
}

TEST(little_output_waits_for_what_went_before_to_be_acknowledged)
{
    static char data[CHUNK_LEAST];
    struct init_ack ack = { { 1, 0 } };

    rig_begin();
    memset(models, 0, sizeof(models));
    start_one(&models[0]);
    struct exec *exec = exec_find(models[0].id);
    int out = rig_child(exec)->fd[1];
    CHECK(write(out, "a", 1) == 1);
    rig_turn();
    CHECK_INT(heard_bytes(), 1); /* nothing was on its way */
    CHECK(write(out, "b", 1) == 1);
    rig_turn();
    CHECK_INT(heard_bytes(), 0);
    tell(INIT_ACK, exec->id, &ack, sizeof(ack), NULL, 0);
    rig_turn();
    CHECK_INT(heard_bytes(), 1);
    CHECK(write(out, data, sizeof(data) - 1) == sizeof(data) - 1);
    rig_turn();
    CHECK_INT(heard_bytes(), 0);
    CHECK(write(out, "c", 1) == 1); /* enough to be worth it */
    rig_turn();
    CHECK_INT(heard_bytes(), CHUNK_LEAST);
    CHECK(write(out, "d", 1) == 1);
    rig_exit(exec, 0); /* its end waits for nobody */
    rig_turn();
    CHECK_INT(heard_bytes(), 1);
    rig_clear();
}

/* Output as far as it has come, in order; nothing may be left out. */
static size_t heard_output(char *out, size_t len, size_t size)
{
    static char data[INIT_FRAME_MAX];
    ssize_t got;

    while ((got = recv(rig_end, data, sizeof(data), MSG_DONTWAIT)) > 0) {
        struct init_head head;
        struct init_output told;

        memcpy(&head, data, sizeof(head));
        if (head.type != INIT_OUTPUT)
            continue;
        memcpy(&told, data + sizeof(head), sizeof(told));
        size_t bytes = head.len - sizeof(told);
        CHECK_INT(told.position, len);
        CHECK(len + bytes <= size);
        memcpy(out + len, data + sizeof(head) + sizeof(told), bytes);
        len += bytes;
    }
    return len;
}

/* A terminal that shows all that it gets, and turns nothing into anything else. */
static struct exec *start_terminal(uint32_t id)
{
    struct init_exec wish = { .flags = INIT_TTY, .argc = 1, .text_len = 4 };
    struct termios mode;

    tell(INIT_EXEC, id, &wish, sizeof(wish), "x\0/", 4);
    rig_turn();
    struct exec *exec = exec_find(id);
    CHECK(exec && exec->tty);
    CHECK_INT(tcgetattr(rig_child(exec)->fd[0], &mode), 0);
    cfmakeraw(&mode);
    mode.c_lflag |= ECHO | ECHOCTL;
    CHECK_INT(tcsetattr(rig_child(exec)->fd[0], TCSANOW, &mode), 0);
    return exec;
}

/*
 * What is typed now comes behind whatever our own end of input would have left there, both where
 * the terminal is read and where it echoes: so nothing has to be waited for that does not come.
 */
TEST(a_terminal_whose_command_has_ended_gets_no_end_of_input)
{
    static char printed[3000], seen[sizeof(printed) + 64];
    size_t len = 0;
    char typed[8];

    rig_begin();
    struct exec *exec = start_terminal(next_id++);
    /* Something it had started still holds the terminal. */
    autoclose int left = fcntl(rig_child(exec)->fd[0], F_DUPFD_CLOEXEC, 0);
    autoclose int master = fcntl(exec->out[INIT_OUT].fd, F_DUPFD_CLOEXEC, 0);
    memset(printed, 'p', sizeof(printed));
    CHECK_INT(write(rig_child(exec)->fd[1], printed, sizeof(printed)), sizeof(printed));
    rig_exit(exec, 0); /* and nobody has read it yet */
    CHECK(exec->in_fd < 0);
    CHECK_INT(write(master, "S", 1), 1);
    for (int i = 0; i < 3000 && !memchr(seen, 'S', len); i++) {
        (void)!poll(&(struct pollfd){ master, POLLIN, 0 }, 1, 10);
        rig_turn();
        len = heard_output(seen, len, sizeof(seen));
    }
    CHECK_INT(len, sizeof(printed) + 1);
    CHECK(memcmp(seen, printed, sizeof(printed)) == 0 && seen[len - 1] == 'S');
    CHECK_INT(read(left, typed, sizeof(typed)), 1);
    CHECK_INT(typed[0], 'S');
    rig_clear();
}

/* One descriptor comes beside a frame, and only a file operation has a use for a stream. */
TEST(a_stream_beside_an_operation_is_there_or_it_is_refused)
{
    struct {
        struct init_head head;
        struct init_exec exec;
    } sent = { { INIT_MAGIC, INIT_EXEC, 0, 1, sizeof(sent.exec) },
               { .argc = 1, .text_len = 4, .flags = INIT_BUILTIN | INIT_SIDE } };
    struct init_started answer;

    rig_begin();
    CHECK(init_frame_ok(&sent, sizeof(sent), true));
    exec_start(400000, &sent.exec, "x\0/", 4, -1, &answer);
    CHECK(answer.pid == 0 && answer.error == EINVAL && answer.step == INIT_STEP_TEXT);
    exec_start(400001, &sent.exec, "x\0/", 4, rig_end, &answer);
    CHECK(answer.pid > 0);
    sent.exec.flags |= INIT_TEXT_FD;
    CHECK(!init_frame_ok(&sent, sizeof(sent), true));
    sent.exec.flags = INIT_SIDE;
    CHECK(!init_frame_ok(&sent, sizeof(sent), true));
    rig_clear();
}
