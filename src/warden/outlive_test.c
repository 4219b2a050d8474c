/*
 * What outlives a box or its warden: boxes that the next warden takes over, and the namespaces,
 * mounts and groups of one that ended.
 */
#include <ftw.h>
#include <sched.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "seccomp/seccomp.h"
#include "warden/cgroup.h"
#include "warden/disk_rig.h"

/* ---- user namespaces ---- */

static ino_t users_of(const struct rig_box *box)
{
    char path[64];
    struct stat st;

    snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)box->pid);
    CHECK(stat(path, &st) == 0);
    return st.st_ino;
}

TEST(a_user_namespace_serves_the_next_box_at_its_index_and_no_other)
{
    const char *state = rig_open();
    struct wire_msg nesting = rig_spec("nesting");

    boxes_pool(0);
    struct rig_left before = rig_before(state);
    nesting.spec.profile = SECCOMP_NESTING;
    struct rig_box first = rig_create(rig_spec("one"), "one");
    struct rig_box second = rig_create(rig_spec("two"), "two");
    ino_t one = users_of(&first), two = users_of(&second);
    CHECK(one != two);
    rig_destroy(&second);
    rig_destroy(&first);
    CHECK_INT(users_count(), 2);
    first = rig_create(rig_spec("three"), "three");
    CHECK_INT(users_of(&first), one);
    CHECK_STR(rig_sh(&first, "cat /proc/sys/user/max_user_namespaces", 0)->out, "0\n");
    CHECK(rig_sh(&first, "unshare --user true", 0)->code != 0);
    /* One in which others may be made is neither taken from there nor given. */
    second = rig_create(nesting, "nesting");
    CHECK(users_of(&second) != two && users_of(&second) != one);
    ino_t open_one = users_of(&second);
    rig_destroy(&second);
    second = rig_create(rig_spec("four"), "four");
    CHECK(users_of(&second) != open_one);
    rig_destroy(&second);
    rig_destroy(&first);
    rig_check_left(state, before);
    boxes_pool(4);
    rig_close();
    CHECK_INT(users_count(), 0);
}

/* What no other network ever has. */
static uint64_t network_of(const struct rig_box *box)
{
    uint64_t cookie = 0;
    socklen_t len = sizeof(cookie);
    autoclose int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);

    CHECK(home >= 0 && setns(box->pidfd, CLONE_NEWNET) == 0);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(setns(home, CLONE_NEWNET) == 0);
    CHECK(getsockopt(fd, SOL_SOCKET, 71 /* SO_NETNS_COOKIE */, &cookie, &len) == 0 && cookie);
    close(fd);
    return cookie;
}

/* The pool has one pair, made before; the next but one gets what the first gave back. */
static bool serves_again(const char *script, bool nested)
{
    struct wire_msg spec = rig_spec("one");
    struct rig_box boxes[2];
    static const char *const ids[] = { "two", "three" };
    uint64_t had;
    bool again = false;

    rig_settle();
    if (nested)
        spec.spec.profile = SECCOMP_NESTING;
    struct rig_box box = rig_create(spec, "one");
    had = network_of(&box);
    CHECK_INT(rig_sh(&box, script, 0)->code, 0);
    rig_settle();
    rig_destroy(&box);
    for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
        boxes[i] = rig_create(rig_spec(ids[i]), ids[i]);
        again |= network_of(&boxes[i]) == had;
        rig_settle();
    }
    for (size_t i = 0; i < ARRAY_LEN(ids); i++)
        rig_destroy(&boxes[i]);
    return again;
}

TEST(a_network_in_which_nothing_was_done_serves_the_next_box_and_no_other_does)
{
    const char *state = rig_open();

    boxes_pool(1);
    struct rig_left before = rig_before(state);
    CHECK(serves_again("true", false));
    CHECK(serves_again("ls -l / > /dev/null", false)); /* asks for names of users */
    CHECK(!serves_again("bash -c 'echo > /dev/udp/127.0.0.1/9'", false));
    CHECK(!serves_again("true", true));
    CHECK(networks_count() <= 2);
    boxes_pool(0);
    CHECK_INT(networks_count(), 0);
    boxes_pool(1);
    rig_settle();
    rig_check_left(state, before);
    boxes_pool(4);
    rig_close();
    CHECK_INT(networks_count(), 0);
}

/* ---- adoption ---- */

/* The one that an earlier warden made. */
static struct rig_box taken_over(void)
{
    struct rig_heard heard = rig_name(WIRE_BOX_OPEN, "stays");
    struct rig_box box = rig_made("stays", &heard);

    fcntl(box.link, F_SETFL, 0);
    return box;
}

TEST(a_box_outlives_the_warden_and_is_taken_over)
{
    const char *state = rig_open();
    pid_t maker = fork();

    CHECK(maker >= 0);
    if (maker == 0) { /* a warden that dies without a word, with a command under way */
        struct rig_box box = rig_create(rig_spec("stays"), "stays");
        const char *texts[] = { "/bin/sh", "-c", "seq 1 20000; sleep 0.3; echo end; exit 9", "A=b",
                                "/" };

        rig_start(&box, texts, 3, 1, 0);
        usleep(50000);
        raise(SIGKILL);
    }
    waitpid(maker, NULL, 0);
    rig_close();
    rig_open_at(state);
    struct wire_msg list = { .verb = WIRE_BOX_LIST };
    struct rig_heard heard = rig_ask(&list);
    CHECK_INT(heard.msg.rows.count, 1);
    CHECK_STR(heard.msg.rows.rows[0].id, "stays");
    struct rig_box box = taken_over();
    struct rig_ran *ran = rig_finish(&box, 1); /* every byte, and how it ended */
    CHECK_INT(ran->code, 9);
    CHECK_INT(ran->len, 108894 + 4);
    CHECK(strncmp(ran->out, "1\n2\n3\n", 6) == 0 && strstr(ran->out, "\n19999\n20000\nend\n"));
    box.execs = 1;
    CHECK_INT(rig_sh(&box, "exit 6", 0)->code, 6);
    CHECK_INT(rig_name(WIRE_BOX_APPLIED, "stays").msg.applied.seccomp_mode, 2);
    rig_destroy(&box);
    CHECK_INT(rig_left(state).dirs, 0);
    CHECK_INT(rig_left(state).cgroups, 0);
    rig_close();
}

/* Where the freezer of v1 is mounted; false: there is none. */
static bool freezer_at(char out[256])
{
    FILE *file = fopen("/proc/self/mountinfo", "re");
    char line[1024];
    bool found = false;

    CHECK(file != NULL);
    while (!found && fgets(line, sizeof(line), file))
        found = strstr(line, " - cgroup ") && strstr(line, "freezer") &&
                sscanf(line, "%*s %*s %*s %*s %255s", out) == 1;
    fclose(file);
    return found;
}

static void put_self(const char *group)
{
    char path[512], pid[16];

    snprintf(path, sizeof(path), "%s/cgroup.procs", group);
    autoclose int fd = open(path, O_WRONLY | O_CLOEXEC);
    snprintf(pid, sizeof(pid), "%d", (int)getpid());
    CHECK(write(fd, pid, strlen(pid)) > 0);
}

/* As a server that was started by hand once more, out of another session. */
TEST(a_box_keeps_its_groups_when_the_next_warden_begins_elsewhere)
{
    char freezer[256], group[320];
    const char *state = rig_open();

    rig_close();
    if (!freezer_at(freezer))
        test_skip("no freezer of v1");
    snprintf(group, sizeof(group), "%s/atoll-test-%d", freezer, (int)getpid());
    CHECK_INT(mkdir(group, 0755), 0);
    pid_t maker = fork();
    CHECK(maker >= 0);
    if (maker == 0) {
        put_self(group);
        rig_open_at(state);
        rig_create(rig_spec("stays"), "stays");
        rig_name(WIRE_BOX_FREEZE, "stays");
        raise(SIGKILL);
    }
    waitpid(maker, NULL, 0);
    rig_open_at(state);
    CHECK_INT(rig_name(WIRE_BOX_THAW, "stays").msg.status, 0);
    struct rig_box box = taken_over();
    CHECK_INT(rig_sh(&box, "exit 6", 0)->code, 6);
    rig_destroy(&box);
    CHECK_INT(rig_left(state).cgroups, 0);
    rig_close();
    CHECK_INT(rmdir(group), 0); /* nothing of ours is left in it */
}

/* Told and dead before the new process 1 has done anything: on one processor, and first there. */
static void make_and_die(void)
{
    const struct sched_param usual = { 0 };
    cpu_set_t one;

    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    CHECK(sched_setaffinity(0, sizeof(one), &one) == 0);
    CHECK(sched_setscheduler(0, SCHED_OTHER | SCHED_RESET_ON_FORK, &usual) == 0);
    CHECK(setpriority(PRIO_PROCESS, 0, -20) == 0);
    (void)rig_create(rig_spec("stays"), "stays");
    raise(SIGKILL);
}

/* What was said to be there stays there. */
TEST(a_box_outlives_a_warden_that_dies_at_once)
{
    const char *state = rig_open();

    for (int i = 0; i < 5; i++) {
        pid_t maker = fork();

        CHECK(maker >= 0);
        if (maker == 0)
            make_and_die();
        waitpid(maker, NULL, 0);
        rig_close();
        rig_open_at(state);
        struct rig_box box = taken_over();
        CHECK_INT(rig_sh(&box, "exit 6", 0)->code, 6);
        rig_destroy(&box);
    }
    rig_close();
}

static struct box_host records = { .boxes_fd = -1 };

static void write_as_earlier(const struct box_record *record)
{
    struct box_record earlier = *record;

    CHECK(process_who_by_number(earlier.pid, &earlier.who) == 0 && earlier.who.pidns);
    CHECK(record_write(&records, &earlier) == 0);
}

/* A box "stays" whose warden was killed. */
static void leave_stays(void)
{
    pid_t maker = fork();

    CHECK(maker >= 0);
    if (maker == 0) {
        (void)rig_create(rig_spec("stays"), "stays");
        raise(SIGKILL);
    }
    waitpid(maker, NULL, 0);
    rig_close();
}

/* Builds and kernels that know no inode of a process say when it began. */
TEST(a_box_that_an_earlier_build_made_is_taken_over)
{
    const char *state = rig_open();
    char path[4096];

    leave_stays();
    snprintf(path, sizeof(path), "%s/records", state);
    records.records_fd = open(path, O_RDWR | O_CLOEXEC);
    records_each(&records, write_as_earlier);
    close(records.records_fd);
    rig_open_at(state);
    struct rig_box box = taken_over();
    CHECK_INT(rig_sh(&box, "exit 6", 0)->code, 6);
    rig_destroy(&box);
    CHECK_INT(rig_left(state).dirs, 0);
    rig_close();
}

static struct box_applied applied_of(const char *id)
{
    return rig_name(WIRE_BOX_APPLIED, id).msg.applied;
}

/* Its ids are those it was made with, and nobody else gets one of them while it lives. */
TEST(a_box_of_another_uid_base_keeps_its_ids_to_itself)
{
    static const char *const names[] = { "a", "b", "c", "d", "e", "f", "g", "h" };
    const char *state = rig_open(), *dir = test_dir();
    uint8_t ticket[16];
    struct rig_box boxes[ARRAY_LEN(names)];

    leave_stays();
    rig_open_with(state, RIG_UID_BASE - BOX_UIDS + 100); /* each range lies across two of before */
    struct box_applied old = applied_of("stays");
    CHECK(old.uid_first > RIG_UID_BASE && (old.uid_first - RIG_UID_BASE) % BOX_UIDS == 0);
    CHECK_INT(rig_name(WIRE_BOX_OPEN, "stays").msg.created.uid_first, old.uid_first);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        boxes[i] = rig_create(rig_spec(names[i]), names[i]);
        struct box_applied it = applied_of(names[i]);

        CHECK_INT((it.uid_first - RIG_UID_BASE) % BOX_UIDS, 100);
        CHECK(it.uid_first >= old.uid_first + BOX_UIDS || it.uid_first + BOX_UIDS <= old.uid_first);
    }
    struct rig_box box = taken_over();
    CHECK_INT(door_leave_path(state, dir, O_RDONLY | O_DIRECTORY, ticket), 0);
    CHECK_INT(mount_ticket("stays", ticket, "/made/mnt", 0), 0);
    check_sh(&box, "[ -O /made/mnt ] && [ $(stat -c %u /made) = 0 ]", 0);
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        rig_destroy(&boxes[i]);
    rig_destroy(&box);
    CHECK(table_free() != NULL);
    rig_close();
}

TEST(an_adopted_box_that_dies_is_news)
{
    const char *state = rig_open();
    pid_t maker = fork();

    if (maker == 0) {
        rig_create(rig_spec("stays"), "stays");
        rig_name(WIRE_BOX_FREEZE, "stays"); /* the next one does not know */
        raise(SIGKILL);
    }
    waitpid(maker, NULL, 0);
    rig_close();
    rig_open_at(state);
    struct wire_msg kill9 = { .verb = WIRE_BOX_SIGNAL, .signal = { .number = SIGKILL } };
    struct rig_heard news;
    snprintf(kill9.signal.name.id, sizeof(kill9.signal.name.id), "stays");
    CHECK_INT(rig_ask(&kill9).msg.status, 0);
    CHECK(rig_wait(WIRE_BOX_DIED, 0, 5000, &news));
    CHECK_INT(news.msg.died.code, -1);
    CHECK_INT(rig_left(state).dirs, 0);
    CHECK_INT(rig_left(state).cgroups, 0);
    rig_close();
}

/* The warden is killed at some instant of a creation: whatever there is then is removed, or runs.
 */
TEST(a_warden_killed_while_making_boxes_leaves_nothing_half_made)
{
    const char *state = rig_open();

    for (int round = 0; round < 30; round++) {
        pid_t maker = fork();

        if (maker == 0) {
            for (unsigned i = 0; i < 6; i++) {
                char id[8];
                struct wire_msg spec;

                snprintf(id, sizeof(id), "k%u", i);
                spec = rig_spec(id);
                boxes_hear(&spec);
            }
            for (;;)
                rig_pump(1);
        }
        usleep(test_rand(8000));
        kill(maker, SIGKILL);
        waitpid(maker, NULL, 0);
        rig_close();
        rig_open_at(state);
        struct wire_msg list = { .verb = WIRE_BOX_LIST };
        struct rig_heard heard = rig_ask(&list);
        for (unsigned i = 0; i < heard.msg.rows.count; i++) {
            struct rig_heard open = rig_name(WIRE_BOX_OPEN, heard.msg.rows.rows[i].id);
            struct rig_box box = rig_made(heard.msg.rows.rows[i].id, &open);

            fcntl(box.link, F_SETFL, 0);
            CHECK_INT(rig_sh(&box, "exit 2", 0)->code, 2);
            rig_destroy(&box);
        }
        CHECK_INT(rig_left(state).dirs, 0);
        CHECK_INT(rig_left(state).cgroups, 0);
    }
    rig_close();
}

/* A record of somebody who had this number before: does the bystander who has it now live on? */
static bool lives_without(const char *guards, bool earlier)
{
    const char *state = rig_open();
    struct box_record record = { .id = "forged", .slot = 3 };
    char path[4096];
    pid_t bystander = fork();

    if (bystander == 0)
        for (;;)
            pause();
    struct box_host host = { .boxes_fd = -1 };
    snprintf(path, sizeof(path), "%s/boxes/forged", state);
    close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    snprintf(path, sizeof(path), "%s/boxes/older", state); /* as an earlier build had them */
    CHECK(mkdir(path, 0700) == 0);
    snprintf(path, sizeof(path), "%s/boxes/older/box", state);
    close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    snprintf(path, sizeof(path), "%s/records", state);
    host.records_fd = open(path, O_RDWR | O_CLOEXEC);
    autoclose int pidfd = (int)syscall(SYS_pidfd_open, bystander, 0);
    CHECK(record_of(pidfd, bystander, &record) == 0);
    if (earlier)
        CHECK(process_who_by_number(bystander, &record.who) == 0);
    record.who.start++; /* the number is reused */
    CHECK(record_write(&host, &record) == 0);
    rig_close();
    rig_without(guards);
    rig_open_at(state);
    rig_without("");
    int status = rig_name(WIRE_BOX_STAT, "forged").msg.status;
    if (status == 0)
        rig_name(WIRE_BOX_DESTROY, "forged");
    CHECK_INT(rig_left(state).dirs, 0);
    CHECK_INT(status, *guards ? 0 : ENOENT);
    bool lives = waitpid(bystander, NULL, WNOHANG) == 0;
    kill(bystander, SIGKILL);
    waitpid(bystander, NULL, 0);
    close(host.records_fd);
    rig_close();
    return lives;
}

TEST(a_record_that_names_another_process_is_not_believed)
{
    for (int earlier = 0; earlier < 2; earlier++) {
        CHECK(lives_without("", earlier));
        CHECK(!lives_without("record_start", earlier));
    }
}

/* The end is told first; then its mounts go, in a process that holds nothing else. */
TEST(mounts_are_let_go_of_when_all_else_is_gone)
{
    rig_open();
    autoclose int seen = inotify_init1(IN_CLOEXEC);
    for (int i = 0; i < 3; i++) {
        struct rig_box box = rig_create(rig_spec("mounts"), "mounts");
        struct pollfd wait = { .fd = seen, .events = POLLIN };
        struct inotify_event event;
        char tmp[64];

        snprintf(tmp, sizeof(tmp), "/proc/%d/root/tmp", (int)box.pid);
        CHECK(inotify_add_watch(seen, tmp, IN_ONLYDIR | IN_DELETE_SELF) >= 0);
        rig_destroy(&box);
        CHECK_INT(poll(&wait, 1, 5000), 1);
        CHECK(read(seen, &event, sizeof(event)) == (ssize_t)sizeof(event));
        CHECK(event.mask & IN_UNMOUNT);
        CHECK(read(seen, &event, sizeof(event)) == (ssize_t)sizeof(event)); /* IN_IGNORED */
        if (i == 1) { /* one that is killed is replaced */
            kill(rig_child(true), SIGKILL);
            rig_settle();
        }
    }
    pid_t sweeper = rig_child(true);
    CHECK(sweeper > 0);
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)sweeper);
    CHECK_INT(rig_entries(path), 1);
    rig_close();
    CHECK_INT(rig_child(true), 0);
}

static struct {
    const char *name; /* its beginning */
    ino_t inodes[64];
    int count;
} groups;

static int see_group(const char *path, const struct stat *st, int type, struct FTW *at)
{
    char ours[128];
    size_t len = (size_t)snprintf(ours, sizeof(ours), "/%s/", box_host.name);

    if (type == FTW_D && (size_t)at->base > len && strncmp(path + at->base - len, ours, len) == 0 &&
        strncmp(path + at->base, groups.name, strlen(groups.name)) == 0 &&
        groups.count < (int)ARRAY_LEN(groups.inodes))
        groups.inodes[groups.count++] = st->st_ino ^ st->st_dev << 32; /* numbers come again */
    return 0;
}

/* A walk fails where a group of another server goes meanwhile; then the next walk counts. */
static int find_groups(const char *name)
{
    int rc = -1;

    groups.name = name;
    for (int tries = 0; rc != 0 && tries < 20; tries++) {
        groups.count = 0;
        rc = nftw("/sys/fs/cgroup", see_group, 16, FTW_PHYS);
    }
    CHECK_INT(rc, 0);
    return groups.count;
}

static bool found(ino_t inode)
{
    for (int i = 0; i < groups.count; i++)
        if (groups.inodes[i] == inode)
            return true;
    return false;
}

TEST(groups_made_ahead_become_those_of_a_box_and_go_with_the_warden)
{
    const char *state = rig_open();
    struct rig_left before = rig_before(state);
    int full = find_groups(".ahead");

    if (full == 0) {
        rig_close();
        test_skip("cgroups of v2 cannot be renamed");
    }
    ino_t inodes[ARRAY_LEN(groups.inodes)];
    memcpy(inodes, groups.inodes, sizeof(inodes));
    struct rig_box box = rig_create(rig_spec("ahead"), "ahead");
    int its = find_groups("ahead"), were_ahead = 0;
    CHECK(its > 0);
    for (int i = 0; i < full; i++)
        were_ahead += found(inodes[i]);
    CHECK_INT(were_ahead, its);
    CHECK_INT(rig_name(WIRE_BOX_APPLIED, "ahead").msg.applied.pids, 64);
    rig_settle();
    CHECK_INT(find_groups(".ahead"), full);
    rig_destroy(&box);
    rig_settle();
    rig_check_left(state, before);
    rig_close();
    CHECK_INT(find_groups(".ahead"), 0);
}

/* Which of the groups found last are these; as bits. */
static unsigned which_of(const ino_t *inodes, int count)
{
    unsigned bits = 0;

    for (int i = 0; i < count; i++)
        bits |= (unsigned)found(inodes[i]) << i;
    return bits;
}

static int groups_of(const char *id, ino_t *out)
{
    int count = find_groups(id);

    memcpy(out, groups.inodes, sizeof(groups.inodes));
    return count;
}

static struct rig_box next_box(unsigned number)
{
    static const char *const ids[CGROUP_KEPT] = { "next0", "next1", "next2", "next3",
                                                  "next4", "next5", "next6", "next7" };

    return rig_create(rig_spec(ids[number]), ids[number]);
}

/* A box that uses much, and ends. False: somebody else still keeps memory that counts as its own.
 */
static bool busy_ends(void)
{
    static const char script[] = "head -c 30M /dev/zero | tail | wc -c;"
                                 " i=0; while [ $i -lt 90000 ]; do i=$((i+1)); done";
    ino_t inodes[ARRAY_LEN(groups.inodes)];
    struct wire_msg spec = rig_spec("busy");

    spec.spec.cpu_percent = 50;
    spec.spec.pids = 32;
    struct rig_box box = rig_create(spec, "busy");
    int count = groups_of("busy", inodes);
    CHECK_INT(rig_sh(&box, script, 0)->code, 0);
    struct box_usage usage = rig_name(WIRE_BOX_STAT, "busy").msg.usage;
    CHECK(usage.cpu_us > 30000 && usage.memory_peak > 30u << 20);
    rig_destroy(&box);
    rig_settle();
    find_groups(".ahead");
    return which_of(inodes, count) == (1u << count) - 1;
}

TEST(groups_of_a_box_that_ended_serve_the_next_as_new_ones_would)
{
    const char *state = rig_open();
    struct rig_left before = rig_before(state);
    struct box_usage usage;
    int rounds = 0;

    if (find_groups(".ahead") == 0) {
        rig_close();
        test_skip("cgroups of v2 cannot be renamed");
    }
    while (!busy_ends())
        CHECK(++rounds < 20);
    boxes_pool(0);                    /* no more are made ahead, */
    struct rig_box next[CGROUP_KEPT]; /* so one of these has them now */
    for (size_t i = 0; i < CGROUP_KEPT; i++) {
        next[i] = next_box((unsigned)i);
        usage = rig_name(WIRE_BOX_STAT, next[i].id).msg.usage;
        CHECK(usage.cpu_us < 30000 && usage.memory_peak < 8u << 20 && usage.pids == 1);
        struct box_applied applied = rig_name(WIRE_BOX_APPLIED, next[i].id).msg.applied;
        CHECK(applied.cpu_quota_us == 0 && applied.pids == 64 && applied.memory == 256u << 20);
    }
    for (size_t i = 0; i < CGROUP_KEPT; i++)
        rig_destroy(&next[i]);
    boxes_pool(4);
    rig_settle();
    rig_check_left(state, before);
    rig_close();
}

TEST(groups_that_cannot_be_as_new_are_removed)
{
    const char *state = rig_open();
    struct rig_left before = rig_before(state);
    ino_t inodes[ARRAY_LEN(groups.inodes)];
    struct wire_msg spec = rig_spec("short");

    if (find_groups(".ahead") == 0) {
        rig_close();
        test_skip("cgroups of v2 cannot be renamed");
    }
    spec.spec.memory = 32u << 20;
    struct rig_box box = rig_create(spec, "short");
    int count = groups_of("short", inodes);
    rig_sh(&box, "head -c 64M /dev/zero | tail", 0);
    CHECK(rig_name(WIRE_BOX_STAT, "short").msg.usage.oom_kills > 0);
    rig_destroy(&box);
    rig_settle();
    find_groups(".ahead");
    CHECK_INT(__builtin_popcount(which_of(inodes, count)), count - 1); /* all but that of memory */
    rig_settle();
    rig_check_left(state, before);
    rig_close();
}
