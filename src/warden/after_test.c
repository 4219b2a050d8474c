/*
 * What a command leaves behind in a real box: children that go on printing, input that nobody
 * reads, and those that must end though process 1 has nothing left to look with.
 */
#include "warden/box_rig.h"

/* sh -c, for as long as it may run; 0: for ever. */
static uint32_t start_for(struct rig_box *box, const char *script, uint32_t flags, uint32_t ms)
{
    struct init_exec exec = { .flags = flags, .argc = 3, .timeout_ms = ms };
    char text[512];
    int len = snprintf(text, sizeof(text), "/bin/sh%c-c%c%s%c/tmp%c", 0, 0, script, 0, 0);

    exec.text_len = (uint32_t)len;
    rig_send(box, INIT_EXEC, ++box->execs, &exec, sizeof(exec), text, (size_t)len);
    return box->execs;
}

/* The next frame, of whichever command; its body in *body. */
static struct init_head next_frame(struct rig_box *box, const char **body)
{
    static char frame[INIT_FRAME_MAX];
    struct init_head head;
    ssize_t len = recv(box->link, frame, sizeof(frame), 0);

    CHECK(len > 0 && init_frame_ok(frame, (size_t)len, false));
    memcpy(&head, frame, sizeof(head));
    *body = frame + sizeof(head);
    return head;
}

TEST(time_is_over_also_where_no_descriptor_is_left)
{
    rig_open();
    for (uint32_t nofile = BOX_NOFILE_MIN; nofile < BOX_NOFILE_MIN + 8; nofile++) {
        struct wire_msg spec = rig_spec("few");
        unsigned running = 0, refused = 0;
        const char *body;

        spec.spec.nofile = nofile;
        struct rig_box box = rig_create(spec, "few");
        CHECK_INT(rig_finish(&box, start_for(&box, "exit 3", 0, 0))->code, 3);
        for (int i = 0; i < 8; i++) /* more than there can be */
            start_for(&box, "exec sleep 100", 0, 500);
        while (running + refused < 8 || running) {
            struct init_head head = next_frame(&box, &body);
            struct init_started started;
            struct init_exited end;

            memcpy(&started, body, MIN(head.len, sizeof(started)));
            memcpy(&end, body, MIN(head.len, sizeof(end)));
            if (head.type == INIT_STARTED)
                started.error ? refused++ : running++;
            if (head.type != INIT_EXITED)
                continue;
            CHECK_INT(end.signal, SIGKILL);
            rig_send(&box, INIT_FORGET, head.exec, NULL, 0, NULL, 0);
            running--, refused++;
        }
        rig_destroy(&box);
    }
    rig_close();
}

/*
 * Who forks faster than one can look belongs to it too (storm in tests/escape/probe.c). Looked at
 * while they run, so many take minutes, and process 1 has time for nothing else.
 */
TEST(a_storm_of_forks_ends_with_its_time)
{
    struct wire_msg spec = rig_spec("storm");
    int64_t until =
        clock_mono_ms() + test_patience(10000); /* by the load of now, not the storm's */

    rig_open();
    spec.spec.pids = 512;
    struct rig_box box = rig_create(spec, "storm");
    rig_bring_probe(&box);
    uint32_t other = start_for(&box, "read x; exit 7", INIT_STDIN_OPEN, 0);
    start_for(&box, "kill -STOP $$; exit 8", 0, 0);
    CHECK_INT(rig_finish(&box, start_for(&box, "exec /tmp/probe storm 480", 0, 1000))->signal,
              SIGKILL);
    CHECK_INT(rig_finish(&box, start_for(&box, "! pgrep probe", 0, 0))->code, 0);
    CHECK(clock_mono_ms() < until);
    /* Others were held meanwhile and sent on, but for who had stopped before. */
    rig_send(&box, INIT_STDIN, other, "x\n", 2, NULL, 0);
    CHECK_INT(rig_finish(&box, other)->code, 7);
    CHECK_INT(rig_finish(&box, start_for(&box, "pgrep -r T -f 'STO[P]'", 0, 0))->code, 0);
    rig_destroy(&box);
    rig_close();
}

/* A command leaves a child that prints when it is told to (/tmp/go), and lives on if it could. */
static void leave_printer(struct rig_box *box, const char *mark)
{
    char script[128];

    snprintf(script, sizeof(script),
             "(until test -e /tmp/go; do sleep 0.05; done; echo x; : > /tmp/%s) & exit 4", mark);
    CHECK_INT(rig_finish(box, start_for(box, script, 0, 0))->code, 4); /* and it is forgotten */
}

static void let_print(struct rig_box *box)
{
    CHECK_INT(rig_finish(box, start_for(box,
                                        ": > /tmp/go; for i in $(seq 300); do"
                                        " pgrep -f 'unti[l]' > /dev/null || exit 0; sleep 0.1;"
                                        " done; exit 1",
                                        0, 0))
                  ->code,
              0);
}

static bool appears(struct rig_box *box, const char *mark)
{
    char script[128];

    snprintf(script, sizeof(script), "test -e /tmp/%s && rm /tmp/%s", mark, mark);
    return rig_finish(box, start_for(box, script, 0, 0))->code == 0;
}

TEST(who_prints_after_its_command_has_ended_lives_on)
{
    rig_open();
    struct rig_box box = rig_create(rig_spec("after"), "after");

    leave_printer(&box, "alive");
    let_print(&box);
    CHECK(appears(&box, "alive"));
    rig_destroy(&box);
    rig_close();
}

/* A quarter of those beyond 32 may be nobody's, and each of these leaves two. */
TEST(pipes_that_are_left_do_not_take_all_descriptors)
{
    struct wire_msg spec = rig_spec("after");

    rig_open();
    spec.spec.nofile = 48;
    struct rig_box box = rig_create(spec, "after");
    for (int i = 0; i < 8; i++)
        leave_printer(&box, i == 0 ? "first" : i == 1 ? "second" : "others");
    let_print(&box);
    CHECK(appears(&box, "first") && appears(&box, "second") && !appears(&box, "others"));
    CHECK_INT(rig_finish(&box, start_for(&box, "rm /tmp/go", 0, 0))->code, 0);
    leave_printer(&box, "later"); /* there is room again */
    let_print(&box);
    CHECK(appears(&box, "later"));
    rig_destroy(&box);
    rig_close();
}

/*
 * Who reads slowly finds the ring full again each time, as its child prints faster: only what was
 * in the pipe at its end is waited for.
 */
TEST(a_child_that_prints_does_not_keep_its_command_running)
{
    struct init_ack ack = { 0 };
    struct init_head head = { 0 };
    const char *body;
    int rounds = 0;

    rig_open();
    struct rig_box box = rig_create(rig_spec("spew"), "spew");
    uint32_t exec = start_for(&box,
                              "exec perl -e 'fcntl STDOUT, 1031, 1 << 20;" /* a pipe of 1 MiB */
                              "if (fork) { select undef, undef, undef, 0.5; exit 5 }"
                              "$x = \"x\" x 65536; syswrite STDOUT, $x while 1'",
                              0, 0);
    do {
        struct pollfd more = { .fd = box.link, .events = POLLIN };
        struct init_output out;

        if (poll(&more, 1, 300) == 0) { /* it has nothing more to say until this is taken */
            CHECK(++rounds < 10);
            rig_send(&box, INIT_ACK, exec, &ack, sizeof(ack), NULL, 0);
            continue;
        }
        head = next_frame(&box, &body);
        memcpy(&out, body, MIN(head.len, sizeof(out)));
        if (head.type == INIT_OUTPUT)
            ack.position[out.stream] = out.position + head.len - sizeof(out);
    } while (head.type != INIT_EXITED);
    CHECK_INT(rig_sh(&box, "pkill -9 perl", 0)->code, 0);
    rig_destroy(&box);
    rig_close();
}

TEST(input_that_nobody_will_read_is_refused)
{
    static struct rig_ran ran;
    struct init_error error;
    const char *body;

    rig_open();
    struct rig_box box = rig_create(rig_spec("deaf"), "deaf");
    uint32_t exec = start_for(&box, "exec 0<&-; echo x; sleep 600", INIT_STDIN_OPEN, 0);
    for (ran.len = 0; ran.len == 0;)
        CHECK(!rig_frame(&box, exec, &ran));
    rig_send(&box, INIT_STDIN, exec, "hello", 5, NULL, 0);
    struct init_head head = next_frame(&box, &body);
    CHECK(head.type == INIT_ERROR && head.exec == exec);
    memcpy(&error, body, sizeof(error));
    CHECK_INT(error.error, EPIPE);
    CHECK_INT(error.type, INIT_STDIN);
    rig_destroy(&box);
    rig_close();
}
