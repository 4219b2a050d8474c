/* The life of boxes, through the verbs: real ones, as root; and every step failed once. */
#include <sys/resource.h>

#include "base/limits.h"
#include "warden/box_rig.h"
#include "warden/cgroup.h"

TEST(a_box_is_made_runs_commands_and_leaves_nothing)
{
    const char *state = rig_open();
    struct rig_left before = rig_before(state);
    struct rig_box box = rig_create(rig_spec("one"), "one");

    struct rig_ran *ran =
        rig_sh(&box, "id -u; hostname; echo $$ | wc -c; cat /proc/self/cgroup | head -1", 0);
    CHECK_INT(ran->code, 0);
    CHECK(strncmp(ran->out, "1000\none\n", 9) == 0);
    ran = rig_sh(&box, "id -u; exit 7", INIT_AS_ROOT);
    CHECK_INT(ran->code, 7);
    CHECK_STR(ran->out, "0\n");
    rig_destroy(&box);
    rig_settle();
    rig_check_left(state, before);
    rig_close();
}

TEST(a_second_box_of_the_same_name_is_refused)
{
    rig_open();
    struct rig_box box = rig_create(rig_spec("same"), "same");
    struct wire_msg spec = rig_spec("same");

    CHECK_INT(rig_ask(&spec).msg.status, EEXIST);
    CHECK_INT(rig_sh(&box, "true", 0)->code, 0);
    rig_destroy(&box);
    CHECK_INT(rig_name(WIRE_BOX_DESTROY, "same").msg.status, ENOENT);
    rig_close();
}

TEST(several_are_made_at_once)
{
    const char *state = rig_open();
    struct rig_left before = rig_before(state);
    struct rig_box boxes[8];
    char ids[8][8];
    uint32_t numbers[8];

    for (unsigned i = 0; i < 8; i++) {
        snprintf(ids[i], sizeof(ids[i]), "b%u", i);
        struct wire_msg spec = rig_spec(ids[i]);
        spec.number = numbers[i] = ++rig_number;
        CHECK(boxes_hear(&spec)); /* none is waited for */
    }
    for (unsigned i = 0; i < 8; i++) {
        struct rig_heard heard;

        CHECK(rig_wait(WIRE_BOX_CREATE, numbers[i], 10000, &heard));
        boxes[i] = rig_made(ids[i], &heard);
    }
    for (unsigned i = 0; i < 8; i++)
        CHECK_INT(rig_sh(&boxes[i], "exit 3", 0)->code, 3);
    for (unsigned i = 0; i < 8; i++)
        rig_destroy(&boxes[i]);
    rig_settle();
    rig_check_left(state, before);
    rig_close();
}

TEST(a_process_1_that_dies_is_news_and_leaves_nothing)
{
    const char *state = rig_open();
    struct rig_left before = rig_before(state);
    struct rig_box box = rig_create(rig_spec("dies"), "dies");
    struct wire_msg kill9 = { .verb = WIRE_BOX_SIGNAL, .signal = { .number = SIGKILL } };
    struct rig_heard news;

    snprintf(kill9.signal.name.id, sizeof(kill9.signal.name.id), "dies");
    CHECK_INT(rig_ask(&kill9).msg.status, 0);
    CHECK(rig_wait(WIRE_BOX_DIED, 0, 5000, &news));
    CHECK_STR(news.msg.died.name.id, "dies");
    CHECK_INT(news.msg.died.signal, SIGKILL);
    CHECK_INT(news.msg.died.oom_kills, 0);
    close(box.pidfd);
    close(box.link);
    rig_settle();
    rig_check_left(state, before);
    rig_close();
}

TEST(only_a_kill_may_be_sent)
{
    rig_open();
    struct rig_box box = rig_create(rig_spec("sig"), "sig");
    struct wire_msg stop = { .verb = WIRE_BOX_SIGNAL, .signal = { .number = SIGSTOP } };

    snprintf(stop.signal.name.id, sizeof(stop.signal.name.id), "sig");
    CHECK_INT(rig_ask(&stop).msg.status, EINVAL);
    rig_destroy(&box);
    rig_close();
}

static int freezer_fd(void)
{
    for (unsigned h = 0; cgroup_dir(h).fd != CGROUP_NONE; h++)
        if (cgroup_what(h) & CGROUP_FREEZER)
            return cgroup_dir(h).v2 ? -1 : cgroup_dir(h).fd;
    return -1;
}

TEST(a_frozen_box_stands_still_and_can_be_destroyed)
{
    rig_open();
    struct rig_box box = rig_create(rig_spec("ice"), "ice");
    const char *texts[] = { "/bin/sh", "-c", "while :; do echo x; sleep 0.01; done", "A=b", "/" };
    struct pollfd wait = { .fd = box.link, .events = POLLIN };
    static struct rig_ran ran;

    uint32_t exec = rig_start(&box, texts, 3, 1, 0);
    CHECK_INT(rig_name(WIRE_BOX_FREEZE, "ice").msg.status, 0);
    CHECK_INT(rig_name(WIRE_BOX_STAT, "ice").msg.usage.frozen, 1);
    while (poll(&wait, 1, 0) == 1) /* acknowledged: else only more of it would be said */
        CHECK(!rig_frame(&box, exec, &ran));
    CHECK_INT(poll(&wait, 1, 100), 0);
    CHECK_INT(rig_name(WIRE_BOX_THAW, "ice").msg.status, 0);
    CHECK_INT(poll(&wait, 1, test_patience(2000)), 1);
    CHECK_INT(rig_name(WIRE_BOX_STAT, "ice").msg.usage.frozen, 0);
    CHECK_INT(rig_name(WIRE_BOX_FREEZE, "ice").msg.status, 0);
    rig_destroy(&box);
    rig_settle();
    int groups = freezer_fd();
    char link[64], path[PATH_MAX] = "", text[64];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", groups);
    if (groups >= 0) { /* v1: one is frozen in which there is nobody, while the warden lives */
        CHECK(readlink(link, path, sizeof(path) - 1) > 0);
        CHECK(cgroup_read(groups, ".cold/freezer.state", text, sizeof(text)) > 0);
        CHECK_STR(text, "FROZEN\n");
        CHECK_INT(cgroup_read(groups, ".cold/cgroup.procs", text, sizeof(text)), 0);
    }
    rig_close();
    CHECK(groups < 0 || faccessat(AT_FDCWD, path, F_OK, 0) < 0);
}

TEST(what_is_applied_is_read_from_the_kernel)
{
    rig_open();
    struct wire_msg spec = rig_spec("show");
    spec.spec.cpu_percent = 150;
    struct rig_box box = rig_create(spec, "show");
    struct rig_heard heard = rig_name(WIRE_BOX_APPLIED, "show");
    const struct box_applied *a = &heard.msg.applied;

    CHECK_INT(heard.msg.status, 0);
    CHECK_INT(a->own_ns, (1 << BOX_NS_COUNT) - 1);
    CHECK(a->uid_first > RIG_UID_BASE && a->uid_count == BOX_UIDS);
    CHECK(a->gid_first == a->uid_first && a->gid_count == BOX_UIDS);
    CHECK_INT(a->uid, a->uid_first);
    CHECK_INT(a->seccomp_mode, 2);
    CHECK_INT(a->seccomp_filters, 1);
    CHECK(strncmp(a->seccomp_digest, "sha256:", 7) == 0);
    CHECK_INT(a->no_new_privs, 1);
    CHECK(a->landlock_abi >= 1);
    CHECK_INT(a->caps[BOX_CAPS_INHERITABLE] | a->caps[BOX_CAPS_AMBIENT], 0);
    CHECK_INT(a->caps[BOX_CAPS_PERMITTED] >> 21 & 1, 0); /* SYS_ADMIN */
    CHECK_INT(a->caps[BOX_CAPS_BOUNDING] >> 21 & 1, 0);
    CHECK_INT(a->memory, 256u << 20);
    CHECK_INT(a->pids, 64);
    CHECK_INT(a->cpu_quota_us, 150000);
    CHECK_INT(a->cpu_period_us, 100000);
    CHECK_INT(a->nofile, 1024);
    CHECK_INT(a->core, 1);
    CHECK_INT(a->disk, 64u << 20);
    CHECK_INT(a->oom_score_adj, 300);
    CHECK(a->mounts > 5 && a->mounts_writable >= 3);
    CHECK_INT(rig_sh(&box, "true", 0)->code, 0); /* it goes on */
    rig_destroy(&box);
    rig_close();
}

TEST(several_may_look_at_once)
{
    struct wire_msg ask = { .verb = WIRE_BOX_APPLIED };
    struct rig_heard heard;

    rig_open();
    struct rig_box box = rig_create(rig_spec("seen"), "seen");
    snprintf(ask.name.id, sizeof(ask.name.id), "seen");
    for (uint32_t i = 0; i < 16; i++) {
        ask.number = 1000 + i;
        CHECK(boxes_hear(&ask));
    }
    for (uint32_t i = 0; i < 16; i++) {
        CHECK(rig_wait(WIRE_BOX_APPLIED, 1000 + i, test_patience(5000), &heard));
        CHECK_INT(heard.msg.status, 0);
        CHECK(strncmp(heard.msg.applied.seccomp_digest, "sha256:", 7) == 0);
    }
    CHECK_INT(rig_sh(&box, "true", 0)->code, 0);
    rig_destroy(&box);
    rig_close();
}

/* Frozen by somebody else, as by who pauses the whole server: it cannot stop, and does not tell. */
TEST(who_does_not_stop_in_time_goes_on_later)
{
    char pid[16], state[64] = "";

    rig_open();
    struct rig_box box = rig_create(rig_spec("waits"), "waits");
    int groups = freezer_fd();
    if (groups < 0)
        test_skip("whom v2 froze can be stopped, and here is no freezer of v1");
    CHECK_INT(rig_name(WIRE_BOX_FREEZE, "waits").msg.status, 0); /* the first makes .cold */
    CHECK_INT(rig_name(WIRE_BOX_THAW, "waits").msg.status, 0);
    snprintf(pid, sizeof(pid), "%d", (int)box.pid);
    CHECK_INT(cgroup_write(groups, ".cold/cgroup.procs", pid), 0);
    while (strcmp(state, "FROZEN\n") != 0) {
        CHECK(cgroup_read(groups, ".cold/freezer.state", state, sizeof(state)) > 0);
        poll(NULL, 0, 1);
    }
    struct rig_heard heard = rig_name(WIRE_BOX_APPLIED, "waits");
    CHECK_INT(heard.msg.status, 0);
    CHECK_INT(heard.msg.applied.seccomp_mode, 2);
    CHECK_STR(heard.msg.applied.seccomp_digest, "");
    CHECK_INT(cgroup_write(groups, "waits/cgroup.procs", pid), 0);
    CHECK_INT(rig_sh(&box, "exit 3", 0)->code, 3);
    CHECK(strlen(rig_name(WIRE_BOX_APPLIED, "waits").msg.applied.seccomp_digest) > 0);
    rig_destroy(&box);
    rig_close();
}

TEST(limits_change_while_it_runs)
{
    rig_open();
    struct rig_box box = rig_create(rig_spec("lim"), "lim");
    struct wire_msg msg = { .verb = WIRE_BOX_LIMITS,
                            .limits = { .memory = 512u << 20, .pids = 99, .cpu_percent = 50 } };

    snprintf(msg.limits.name.id, sizeof(msg.limits.name.id), "lim");
    CHECK_INT(rig_ask(&msg).msg.status, 0);
    struct rig_heard heard = rig_name(WIRE_BOX_APPLIED, "lim");
    CHECK_INT(heard.msg.applied.memory, 512u << 20);
    CHECK_INT(heard.msg.applied.pids, 99);
    CHECK_INT(heard.msg.applied.cpu_quota_us, 50000);
    msg.limits = (struct box_limits){ .name = msg.limits.name, .cpu_percent = BOX_CPU_FREE };
    CHECK_INT(rig_ask(&msg).msg.status, 0);
    heard = rig_name(WIRE_BOX_APPLIED, "lim");
    CHECK_INT(heard.msg.applied.cpu_quota_us, 0);
    CHECK_INT(heard.msg.applied.pids, 99);
    msg.limits.pids = BOX_PIDS_MIN - 1;
    CHECK_INT(rig_ask(&msg).msg.status, EINVAL);
    rig_destroy(&box);
    rig_close();
}

TEST(the_list_has_every_box_once)
{
    rig_open();
    struct rig_box boxes[BOX_ROWS + 2];
    char ids[BOX_ROWS + 2][8];
    unsigned seen[BOX_ROWS + 2] = { 0 };
    struct wire_msg list = { .verb = WIRE_BOX_LIST };

    for (unsigned i = 0; i < ARRAY_LEN(boxes); i++) {
        snprintf(ids[i], sizeof(ids[i]), "l%u", i);
        boxes[i] = rig_create(rig_spec(ids[i]), ids[i]);
    }
    do {
        struct rig_heard heard = rig_ask(&list);
        const struct box_rows *rows = &heard.msg.rows;

        for (unsigned k = 0; k < rows->count; k++)
            for (unsigned i = 0; i < ARRAY_LEN(boxes); i++)
                if (strcmp(rows->rows[k].id, ids[i]) == 0) {
                    CHECK_INT(rows->rows[k].pid, boxes[i].pid);
                    CHECK_INT(rows->rows[k].state, BOX_RUNNING);
                    seen[i]++;
                }
        list.page.from = rows->next;
    } while (list.page.from);
    for (unsigned i = 0; i < ARRAY_LEN(boxes); i++)
        CHECK_INT(seen[i], 1);
    list.page.from = UINT32_MAX;
    CHECK_INT(rig_ask(&list).msg.rows.count, 0);
    for (unsigned i = 0; i < ARRAY_LEN(boxes); i++)
        rig_destroy(&boxes[i]);
    rig_close();
}

TEST(a_new_connection_replaces_the_old)
{
    rig_open();
    struct rig_box box = rig_create(rig_spec("open"), "open");
    struct rig_heard again = rig_name(WIRE_BOX_OPEN, "open");
    static char frame[INIT_FRAME_MAX];

    CHECK_INT(again.msg.status, 0);
    CHECK_INT(again.msg.created.pid, box.pid);
    while (recv(box.link, frame, sizeof(frame), 0) > 0)
        ; /* the old one ends */
    close(box.link);
    close(box.pidfd);
    box.pidfd = again.fds[0];
    box.link = again.fds[1];
    fcntl(box.link, F_SETFL, 0);
    CHECK_INT(rig_sh(&box, "exit 4", 0)->code, 4);
    rig_destroy(&box);
    rig_close();
}

/* Whoever asks takes "no such box" for its end: one that cannot be reached is not gone. */
TEST(a_box_that_cannot_be_connected_is_not_said_to_be_gone)
{
    rig_open();
    struct rig_box box = rig_create(rig_spec("there"), "there");

    CHECK_INT(unlinkat(box_host.boxes_fd, "there", 0), 0);
    CHECK_INT(rig_name(WIRE_BOX_OPEN, "there").msg.status, EIO);
    CHECK_INT(rig_name(WIRE_BOX_OPEN, "gone").msg.status, ENOENT);
    CHECK_INT(rig_sh(&box, "exit 4", 0)->code, 4);
    rig_destroy(&box);
    rig_close();
}

/* ---- hostile requests ---- */

static void check_refused(struct wire_msg msg, int error)
{
    struct rig_heard heard = rig_ask(&msg);

    CHECK_INT(heard.msg.status, error);
    CHECK_INT(heard.count, 0);
    CHECK_INT(heard.msg.created.step, BOX_STEP_SPEC);
}

TEST(a_wish_beyond_the_limits_is_refused)
{
    const char *state = rig_open();
    struct rig_left before = rig_before(state);
    struct wire_msg good = rig_spec("bad"), msg;

#define REFUSED(field, value)                                                                      \
    msg = good;                                                                                    \
    msg.spec.field = (value);                                                                      \
    check_refused(msg, EINVAL)
    REFUSED(memory, BOX_MEMORY_MIN - 1);
    REFUSED(memory, BOX_MEMORY_MAX + 1);
    REFUSED(pids, BOX_PIDS_MIN - 1);
    REFUSED(pids, BOX_PIDS_MAX + 1);
    REFUSED(disk, BOX_DISK_MIN - 1);
    REFUSED(disk, BOX_MEMORY_MAX + 1);
    REFUSED(inodes, BOX_INODES_MIN - 1);
    REFUSED(inodes, BOX_INODES_MAX + 1);
    REFUSED(nofile, BOX_NOFILE_MIN - 1);
    REFUSED(nofile, BOX_NOFILE_MAX + 1);
    REFUSED(cpu_percent, BOX_CPU_MAX + 1);
    REFUSED(flags, BOX_FLAGS + 1);
    REFUSED(must, 1u << BOX_LOSSES);
    REFUSED(unused, 1);
    REFUSED(profile, BOX_PROFILES);
    REFUSED(layer_count, 1);
    REFUSED(layers[11], 1);
    REFUSED(net, 1);
    REFUSED(zero[6], 1);
    REFUSED(id[0], '/');
    REFUSED(id[0], '.');
    REFUSED(id[0], 'A');
    REFUSED(id[0], 0);
    REFUSED(id[BOX_ID_SIZE - 1], 'x');
    memset(msg.spec.id, 'x', sizeof(msg.spec.id));
    check_refused(msg, EINVAL);
    snprintf(msg.spec.id, sizeof(msg.spec.id), "../../escape");
    check_refused(msg, EINVAL);
    rig_settle();
    rig_check_left(state, before);
    rig_close();
}

TEST(names_of_no_box_are_refused_by_every_verb)
{
    rig_open();
    for (unsigned verb = WIRE_BOX_OPEN; verb < WIRE_BOX_LIST; verb++) {
        CHECK_INT(rig_name((enum wire_verb)verb, "nobody").msg.status, ENOENT);
        CHECK_INT(rig_name((enum wire_verb)verb, "No/body").msg.status, EINVAL);
        CHECK_INT(rig_name((enum wire_verb)verb, "").msg.status, EINVAL);
    }
    struct wire_msg died = { .verb = WIRE_BOX_DIED };
    CHECK(!boxes_hear(&died));
    rig_close();
}

TEST(the_asker_that_is_gone_gets_no_answer_and_no_box)
{
    const char *state = rig_open();
    struct rig_left before = rig_before(state);
    struct wire_msg spec = rig_spec("late");
    struct rig_heard heard;

    spec.number = ++rig_number;
    CHECK(boxes_hear(&spec));
    boxes_forget_asker();
    CHECK(!rig_wait(WIRE_BOX_CREATE, spec.number, 500, &heard));
    rig_settle();
    CHECK_INT(rig_name(WIRE_BOX_STAT, "late").msg.status, ENOENT);
    rig_check_left(state, before);
    rig_close();
}

/* A server that is told to end takes back what it was just making. */
TEST(a_box_that_is_being_made_can_be_destroyed)
{
    const char *state = rig_open();
    struct rig_left before = rig_before(state);
    struct wire_msg spec = rig_spec("young"), destroy = { .verb = WIRE_BOX_DESTROY };
    struct rig_heard heard;

    snprintf(destroy.name.id, sizeof(destroy.name.id), "young");
    spec.number = ++rig_number;
    destroy.number = ++rig_number;
    CHECK(boxes_hear(&spec) && boxes_hear(&destroy));
    CHECK(rig_wait(WIRE_BOX_CREATE, spec.number, test_patience(5000), &heard));
    CHECK_INT(heard.msg.status, ECANCELED);
    CHECK_INT(heard.msg.created.pid, 0);
    CHECK(rig_wait(WIRE_BOX_DESTROY, destroy.number, test_patience(5000), &heard));
    CHECK_INT(heard.msg.status, 0);
    CHECK_INT(rig_name(WIRE_BOX_STAT, "young").msg.status, ENOENT);
    rig_settle();
    rig_check_left(state, before);
    rig_close();
}

/* ---- descriptors ---- */

static rlim_t lowest_free(void)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

    CHECK(fd >= 0);
    close(fd);
    return (rlim_t)fd;
}

TEST(the_last_descriptors_are_for_the_boxes_there_are)
{
    const char *state = rig_open();
    struct rig_left before = rig_before(state);
    struct rlimit old, low;
    struct wire_msg spec = rig_spec("more");

    boxes_pool(0);
    struct rig_box box = rig_create(rig_spec("there"), "there");
    CHECK(getrlimit(RLIMIT_NOFILE, &old) == 0);
    low = (struct rlimit){ lowest_free() + BOX_FDS_SPARE, old.rlim_max };
    CHECK(setrlimit(RLIMIT_NOFILE, &low) == 0);
    struct rig_heard refused = rig_ask(&spec);
    boxes_pool(4); /* nor are any made ahead */
    rig_settle();
    rlim_t ahead = lowest_free();
    bool works = rig_sh(&box, "true", 0)->code == 0 &&
                 rig_name(WIRE_BOX_STAT, "there").msg.status == 0 &&
                 rig_name(WIRE_BOX_FREEZE, "there").msg.status == 0 &&
                 rig_name(WIRE_BOX_THAW, "there").msg.status == 0;
    boxes_pool(0);
    low.rlim_cur++; /* one more, and there is room */
    CHECK(setrlimit(RLIMIT_NOFILE, &low) == 0);
    struct rig_heard made = rig_ask(&spec);
    CHECK(setrlimit(RLIMIT_NOFILE, &old) == 0);
    CHECK_INT(refused.msg.status, EMFILE);
    CHECK_INT(refused.msg.created.step, BOX_STEP_SPEC);
    CHECK_INT(ahead + BOX_FDS_SPARE, low.rlim_cur - 1);
    CHECK(works);
    struct rig_box more = rig_made("more", &made);
    rig_destroy(&more);
    rig_destroy(&box);
    boxes_pool(4);
    rig_settle();
    rig_check_left(state, before);
    rig_close();
}

/* Each number that a child is sure to get a copy of is taken: what it needs is copied anyway. */
TEST(a_box_is_made_where_all_low_descriptors_are_taken)
{
    const char *state = rig_open();
    struct rlimit old;
    int taken[FDS_KEPT];
    unsigned count = 0;

    CHECK(getrlimit(RLIMIT_NOFILE, &old) == 0);
    CHECK(setrlimit(RLIMIT_NOFILE, &(struct rlimit){ 4 * FDS_KEPT, old.rlim_max }) == 0);
    while (lowest_free() < FDS_KEPT)
        CHECK((taken[count++] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0);
    struct rig_left before = rig_before(state);
    boxes_pool(0); /* the namespaces, too */
    struct rig_box box = rig_create(rig_spec("above"), "above");
    CHECK_INT(rig_sh(&box, "true", 0)->code, 0);
    rig_destroy(&box);
    boxes_pool(4);
    rig_settle();
    rig_check_left(state, before);
    while (count)
        close(taken[--count]);
    CHECK(setrlimit(RLIMIT_NOFILE, &old) == 0);
    rig_close();
}

/* ---- faults ---- */

/* Steps that this box does not take, or that no hook can fail (KEEP and TIME have tests below). */
#define UNTRIED                                                                                    \
    (1ull << BOX_STEP_NONE | 1ull << BOX_STEP_SPEC | 1ull << BOX_STEP_SYS |                        \
     1ull << BOX_STEP_TOOL | 1ull << BOX_STEP_KEEP | 1ull << BOX_STEP_TIME)

/*
 * Every second box meets a fault, one try later each time, until it got past the last one; the
 * others run a command. Namespaces are made on the way, not ahead, so that they fail here, too.
 */
TEST(a_thousand_cycles_with_a_fault_at_every_step_in_turn)
{
    const char *state = rig_open();
    uint64_t failed = 0;
    unsigned rounds = 0;
    int fault = 0;

    boxes_pool(0);
    struct rig_left before = rig_before(state);
    for (int cycle = 0; cycle < 1000; cycle++) {
        struct wire_msg spec = rig_spec("cycle");

        box_fault_in = cycle % 2 ? 0 : ++fault;
        struct rig_heard heard = rig_ask(&spec);
        box_fault_in = 0;
        if (heard.msg.status == 0) {
            struct rig_box box = rig_made("cycle", &heard);
            const char *texts[] = { "/bin/true", "/" };

            rounds += cycle % 2 == 0;
            fault = cycle % 2 ? fault : 0;
            CHECK_INT(rig_finish(&box, rig_start(&box, texts, 1, 0, 0))->code, 0);
            rig_destroy(&box);
        } else {
            CHECK_INT(cycle % 2, 0);
            CHECK_INT(heard.msg.status, EIO);
            CHECK_INT(heard.count, 0);
            failed |= 1ull << heard.msg.created.step;
        }
        rig_check_left(state, before);
    }
    CHECK(rounds > 3);
    CHECK_INT(failed | UNTRIED, (1ull << BOX_STEPS) - 1);
    boxes_pool(4);
    rig_close();
}

/* The pipe that it would have said something with ends with it, as it does when all went well. */
TEST(a_child_that_ends_without_a_word_is_no_box)
{
    const char *state = rig_open();
    struct rig_left before = rig_before(state);
    struct rig_heard heard;
    int silent = 0, n = 0;

    box_fault_ends = true;
    do {
        struct wire_msg spec = rig_spec("silent");

        rig_settle();
        box_fault_in = ++n;
        heard = rig_ask(&spec);
        box_fault_in = 0;
        silent += heard.msg.status == ECHILD && heard.msg.created.step == BOX_STEP_INIT;
        CHECK(heard.msg.status == 0 || heard.msg.status == ECHILD || heard.msg.status == EIO);
        rig_settle();
        if (heard.msg.status)
            rig_check_left(state, before);
    } while (heard.msg.status);
    box_fault_ends = false;
    CHECK(silent > 20);
    struct rig_box box = rig_made("silent", &heard);
    CHECK_INT(rig_sh(&box, "true", 0)->code, 0);
    rig_destroy(&box);
    rig_close();
}

TEST(a_record_that_cannot_be_kept_undoes_the_box)
{
    const char *state = rig_open();
    struct rig_left before = rig_before(state);
    struct wire_msg spec = rig_spec("fault");

    box_fault_at = BOX_STEP_KEEP;
    struct rig_heard heard = rig_ask(&spec);
    box_fault_at = BOX_STEP_NONE;
    CHECK_INT(heard.msg.status, EIO);
    CHECK_INT(heard.msg.created.step, BOX_STEP_KEEP);
    rig_settle();
    rig_check_left(state, before);
    rig_close();
}

/* Where the warden is process 1, or a script became it, a child may end that nobody waits for. */
TEST(a_child_that_is_nobodys_keeps_no_end_waiting)
{
    const char *state = rig_open();
    siginfo_t info;
    pid_t stranger = fork();

    CHECK(stranger >= 0);
    if (stranger == 0)
        _exit(0);
    CHECK(waitid(P_PID, (id_t)stranger, &info, WEXITED | WNOWAIT) == 0);
    for (int i = 0; i < 4; i++) {
        struct wire_msg spec = rig_spec((const char *[]){ "a", "b", "c", "d" }[i]);

        spec.number = ++rig_number;
        CHECK(boxes_hear(&spec));
    }
    rig_close();
    CHECK_INT(rig_child(false), 0);
    CHECK_INT(rig_left(state).dirs, 0);
}
