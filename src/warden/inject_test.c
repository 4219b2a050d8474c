/* Mounts into boxes that run, with a box that does its best to have them elsewhere; the door. */
#include <sys/prctl.h>

#include "base/limits.h"
#include "warden/disk_rig.h"

TEST(a_volume_is_shared_by_two_boxes)
{
    rig_open();
    disk_made(5, 50 * MIB, 0);
    struct rig_box one = rig_create(rig_spec("one"), "one");
    struct rig_box two = rig_create(rig_spec("two"), "two");

    CHECK_INT(mount_disk("one", 5, "/data/deep/vol", 0), 0);
    check_sh(&one, "echo shared > /data/deep/vol/f && chown 1000 /data/deep/vol/f", INIT_AS_ROOT);
    check_sh(&one, "echo more >> /data/deep/vol/f && ! touch /data/deep/vol/top", 0);
    struct wire_msg agents = { .verb = WIRE_DISK_MAKE,
                               .disk = { .id = 6, .flags = DISK_FOR_AGENT } };
    CHECK_INT(rig_ask(&agents).msg.status, 0);
    CHECK_INT(mount_disk("one", 6, "/mine", 0), 0);
    check_sh(&one, "[ -O /mine ] && touch /mine/top", 0);
    CHECK_INT(mount_disk("two", 5, "/mnt", BOX_MOUNT_READ_ONLY), 0);
    check_sh(&two, "grep more /mnt/f && [ -O /mnt/f ]", 0);
    check_sh(&two, "! touch /mnt/g && ! rm /mnt/f", INIT_AS_ROOT);
    check_sh(&two, "touch /mnt/g 2>&1 | grep -q 'Read-only'", INIT_AS_ROOT);
    check_sh(&one,
             "echo late > /data/deep/vol/h; stat -c '%u %a' /data /data/deep | sort -u |"
             " grep -qx '0 755'",
             INIT_AS_ROOT);
    check_sh(&two, "grep late /mnt/h", 0);
    CHECK(strstr(mount_options(one.pid, "/data/deep/vol"), "nosuid"));
    CHECK(strstr(mount_options(one.pid, "/data/deep/vol"), "nodev"));
    CHECK(strncmp(mount_options(two.pid, "/mnt"), "ro", 2) == 0);
    rig_destroy(&one);
    check_sh(&two, "grep late /mnt/h", 0);
    rig_destroy(&two);
    struct rig_box three = rig_create(rig_spec("three"), "three");
    CHECK(table_find((char[BOX_ID_SIZE]){ "three" })->in_memory);
    CHECK_INT(mount_disk("three", 5, "/mnt", 0), 0);
    /* The disk is needed. */
    CHECK_INT(sweep_hold(table_find((char[BOX_ID_SIZE]){ "three" }), -1), -1);
    check_sh(&three, "grep late /mnt/h", 0);
    rig_destroy(&three);
    rig_close();
}

/* What a disk's mount lacks anyway, a directory of the host has; a file system made so is no test.
 */
TEST(without_its_guard_a_mount_would_be_unsafe)
{
    const char *state = rig_open(), *dir = test_dir();
    struct rig_box box = rig_create(rig_spec("box"), "box");
    uint8_t ticket[16];

    CHECK_INT(door_leave_path(state, dir, O_RDONLY | O_DIRECTORY, ticket), 0);
    rig_without("nosuid,nodev");
    CHECK_INT(mount_ticket("box", ticket, "/mnt", 0), 0);
    rig_without("");
    if (strstr(mount_options(box.pid, "/mnt"), "nosuid"))
        test_skip("the temporary directory is on a file system without setuid programs");
    rig_destroy(&box);
    rig_close();
}

TEST(targets_that_lead_elsewhere_are_refused)
{
    const char *state = rig_open();
    disk_made(5, 0, 0);
    struct rig_box box = rig_create(rig_spec("box"), "box");
    static const char *const malformed[] = { "",      "/",      "mnt",       "//mnt",     "/mnt/",
                                             "/a//b", "/a/./b", "/a/../b",   "/..",       "/proc",
                                             "/dev",  "/sys/x", "/proc/1/x", "/dev/shm/x" };

    for (size_t i = 0; i < ARRAY_LEN(malformed); i++)
        CHECK_INT(mount_disk("box", 5, malformed[i], 0), EINVAL);
    check_sh(&box,
             "ln -s /workspace /tmp/link; ln -s /proc /tmp/proc; ln -s .. /tmp/up;"
             "ln -s /proc/self/root /tmp/magic; touch /tmp/file; mkfifo /tmp/fifo",
             0);
    static const struct {
        const char *target;
        int error;
    } refused[] = { { "/tmp/link", ENOTDIR },    { "/tmp/link/x", ELOOP },
                    { "/tmp/proc/x", ELOOP },    { "/tmp/up/x", ELOOP },
                    { "/tmp/magic/tmp", ELOOP }, { "/tmp/file", ENOTDIR },
                    { "/tmp/fifo/x", ENOTDIR } };
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        int error = mount_disk("box", 5, refused[i].target, 0);

        if (error != refused[i].error && error != ENOTDIR && error != ELOOP)
            test_fail(__FILE__, __LINE__, "%s: %s", refused[i].target, strerror(error));
    }
    CHECK(!mount_options(box.pid, "/workspace"));
    CHECK_INT(mount_disk("box", 77, "/mnt", 0), ENOENT);
    CHECK_INT(mount_disk("nobox", 5, "/mnt", 0), ENOENT);
    rig_without("links"); /* and without the guard it is elsewhere */
    CHECK_INT(mount_disk("box", 5, "/tmp/link", 0), 0);
    rig_without("");
    CHECK(mount_options(box.pid, "/workspace") != NULL);
    rig_destroy(&box);
    CHECK_INT(rig_left(state).dirs, 0);
    rig_close();
}

/* How many mounts came to be where the symlink leads; *landed: all that came to be. */
static int race(unsigned *landed)
{
    int elsewhere = 0;

    *landed = 0;
    for (int round = 0; round < 10 && !elsewhere; round++) {
        struct rig_box box = rig_create(rig_spec("race"), "race");

        rig_swap(&box, "/workspace");
        for (int i = 0; i < 20; i++)
            *landed += mount_disk("race", 5, "/tmp/t/x", 0) == 0;
        elsewhere += mount_options(box.pid, "/workspace") != NULL ||
                     mount_options(box.pid, "/workspace/x") != NULL;
        rig_destroy(&box);
    }
    return elsewhere;
}

TEST(a_target_that_is_swapped_meanwhile_leads_nowhere)
{
    unsigned landed;

    rig_open();
    disk_made(5, 0, 0);
    CHECK_INT(race(&landed), 0);
    CHECK(landed > 0);
    rig_without("links"); /* the race is real */
    CHECK(race(&landed) > 0);
    rig_without("");
    rig_close();
}

TEST(every_step_of_a_mount_that_fails_leaves_nothing)
{
    const char *state = rig_open();
    disk_made(5, 0, 0);
    struct rig_left before = rig_before(state);
    struct rig_box box = rig_create(rig_spec("box"), "box");
    int mounts, n = 0, status;

    rig_settle();
    before = rig_left(state);
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/mountinfo", (int)box.pid);
    mounts = rig_lines(path);
    do {
        box_fault_in = ++n;
        status = mount_disk("box", 5, "/mnt", 0);
        box_fault_in = 0;
        CHECK(status == EIO || status == 0);
        CHECK_INT(rig_lines(path), mounts + (status == 0));
        CHECK_INT(rig_left(state).fds, before.fds);
    } while (status);
    CHECK(n > 4);
    rig_destroy(&box);
    rig_close();
}

TEST(memory_grows_and_shrinks_while_a_box_runs)
{
    rig_open();
    struct wire_msg spec = rig_spec("size");
    spec.spec.disk = 4 * MIB;
    spec.spec.inodes = 100;
    struct rig_box box = rig_create(spec, "size");
    struct wire_msg msg = { .verb = WIRE_BOX_LIMITS, .limits = { .disk = 16 * MIB } };

    snprintf(msg.limits.name.id, sizeof(msg.limits.name.id), "size");
    check_sh(&box, "! head -c 8M /dev/zero > /tmp/f", 0);
    CHECK_INT(rig_ask(&msg).msg.status, 0);
    CHECK_INT(rig_name(WIRE_BOX_APPLIED, "size").msg.applied.disk, 16 * MIB);
    check_sh(&box, "head -c 8M /dev/zero > /tmp/f", 0);
    msg.limits.disk = 2 * MIB;
    CHECK_INT(rig_ask(&msg).msg.status, ENOSPC);
    check_sh(&box, "! (cd /tmp; for i in $(seq 200); do : > n$i || exit 1; done)", 0);
    msg.limits.disk = 0;
    msg.limits.inodes = 1000;
    CHECK_INT(rig_ask(&msg).msg.status, 0);
    check_sh(&box, "cd /tmp; for i in $(seq 200); do : > n$i || exit 1; done; rm n* f", 0);
    msg.limits.disk = 2 * MIB;
    CHECK_INT(rig_ask(&msg).msg.status, 0);
    check_sh(&box, "! head -c 3M /dev/zero > /tmp/f", 0);
    msg.limits.disk = BOX_DISK_MIN - 1;
    CHECK_INT(rig_ask(&msg).msg.status, EINVAL);
    rig_destroy(&box);
    rig_close();
}

TEST(a_volume_that_is_dropped_while_in_use_hurts_nobody_else)
{
    const char *state = rig_open();
    disk_made(5, 50 * MIB, 0);
    disk_made(6, 50 * MIB, 0);
    struct rig_box box = rig_create(rig_spec("box"), "box");

    CHECK_INT(mount_disk("box", 5, "/vol", 0), 0);
    CHECK_INT(mount_disk("box", 6, "/other", 0), 0);
    check_sh(&box, "echo x > /vol/f && chmod 777 /vol /other", INIT_AS_ROOT);
    CHECK_INT(disk_ask(WIRE_DISK_DROP, 5, 0, 0).msg.status, 0);
    rig_sh(&box, "ls -la /vol; cat /vol/f; echo y > /vol/g; sync", 0); /* whatever comes of it */
    check_sh(&box, "echo fine > /other/f && sync && cat /other/f", 0);
    CHECK_INT(mount_disk("box", 5, "/again", 0), ENOENT);
    rig_destroy(&box);
    rig_close();
    rig_check_no_loops(state);
}

/* ---- the door ---- */

TEST(a_directory_left_at_the_door_is_the_agents)
{
    const char *state = rig_open(), *dir = test_dir();
    char path[4096];
    struct stat st;
    uint8_t ticket[16], other[16] = { 1 };

    snprintf(path, sizeof(path), "%s/own", dir);
    autoclose int file = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    CHECK(file >= 0);
    struct rig_box box = rig_create(rig_spec("box"), "box");
    CHECK_INT(door_leave_path(state, dir, O_RDONLY | O_DIRECTORY, ticket), 0);
    CHECK_INT(mount_ticket("box", other, "/bind", 0), ETIMEDOUT);
    CHECK_INT(mount_ticket("box", ticket, "/bind", 0), 0);
    CHECK_INT(mount_ticket("box", ticket, "/again", 0), EBUSY);
    check_sh(&box, "[ -O /bind/own ] && echo hi > /bind/own && echo new > /bind/new", 0);
    check_sh(&box, "! touch /bind/by-root", INIT_AS_ROOT); /* the box's root is nobody there */
    CHECK_INT(fstat(file, &st), 0);
    CHECK_INT(st.st_size, 3);
    snprintf(path, sizeof(path), "%s/new", dir);
    CHECK_INT(stat(path, &st), 0);
    CHECK_INT(st.st_uid, getuid());
    CHECK(strstr(mount_options(box.pid, "/bind"), "nosuid"));
    CHECK(strstr(mount_options(box.pid, "/bind"), "nodev"));
    CHECK_INT(door_leave_path(state, dir, O_RDONLY | O_DIRECTORY, ticket), 0);
    CHECK_INT(mount_ticket("box", ticket, "/srv/bind", BOX_MOUNT_AS_ROOT | BOX_MOUNT_READ_ONLY), 0);
    check_sh(&box, "[ -O /srv/bind/own ] && ! touch /srv/bind/own", INIT_AS_ROOT);
    rig_destroy(&box);
    rig_close();
}

TEST(a_view_of_a_directory_keeps_what_is_changed_in_the_box)
{
    const char *state = rig_open(), *dir = test_dir();
    char path[4096];
    struct stat st;
    uint8_t ticket[16];

    snprintf(path, sizeof(path), "%s/sub", dir);
    CHECK(mkdir(path, 0755) == 0 && chmod(dir, 0750) == 0);
    snprintf(path, sizeof(path), "%s/sub/own", dir);
    autoclose int file = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    CHECK(file >= 0 && write(file, "old\n", 4) == 4);
    struct rig_box box = rig_create(rig_spec("box"), "box");
    CHECK_INT(door_leave_path(state, dir, O_RDONLY | O_DIRECTORY, ticket), 0);
    CHECK_INT(mount_ticket("box", ticket, "/workspace", BOX_MOUNT_VIEW), 0);
    check_sh(&box, "cd /workspace && [ -O . ] && [ $(stat -c %a .) = 750 ] && [ -O sub/own ]", 0);
    check_sh(&box, "cd /workspace && echo new > sub/own && echo x > fresh && mkdir d && rm -r d",
             0);
    check_sh(&box, "[ $(cat " VIEW_PLACE "/before/sub/own) = old ]", 0);
    check_sh(&box, "[ $(cat " VIEW_PLACE "/upper/sub/own) = new ]", 0);
    check_sh(&box, "cd /workspace && rm -r sub && ! [ -e sub ] && [ -c " VIEW_PLACE "/upper/sub ]",
             0);
    CHECK(fstat(file, &st) == 0 && st.st_size == 4 && st.st_nlink == 1);
    snprintf(path, sizeof(path), "%s/fresh", dir);
    CHECK(access(path, F_OK) < 0);
    CHECK(strstr(mount_options(box.pid, "/workspace"), "nosuid"));
    CHECK(strstr(mount_options(box.pid, "/workspace"), "nodev"));
    rig_destroy(&box);
    rig_close();
}

TEST(the_changes_of_a_view_are_on_the_disk_that_the_box_writes_to)
{
    const char *state = rig_open(), *dir = test_dir();
    char path[4096];
    uint8_t ticket[16];

    disk_made(1, 20 * MIB, 0);
    CHECK(chmod(dir, 0750) == 0);
    snprintf(path, sizeof(path), "%s/own", dir);
    autoclose int file = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    CHECK(file >= 0 && write(file, "old\n", 4) == 4);
    struct wire_msg spec = rig_spec("box");
    spec.spec.upper = 1;
    struct rig_box box = rig_create(spec, "box");
    CHECK_INT(door_leave_path(state, dir, O_RDONLY | O_DIRECTORY, ticket), 0);
    CHECK_INT(mount_ticket("box", ticket, "/workspace", BOX_MOUNT_VIEW), 0);
    check_sh(&box, "cd /workspace && [ -O . ] && [ $(stat -c %a .) = 750 ] && [ -O own ]", 0);
    check_sh(&box, "cd /workspace && echo new > own && mkdir d && [ -O d ] && rm -r d", 0);
    check_sh(&box, "[ $(cat " VIEW_PLACE "/before/own) = old ]", 0);
    check_sh(&box, "[ $(cat " VIEW_PLACE "/upper/own) = new ]", 0);
    check_sh(&box, "cd " VIEW_PLACE " && ! touch upper/x && ! touch work/upper/x", INIT_AS_ROOT);
    check_sh(&box, "cd /workspace && rm own && [ -c " VIEW_PLACE "/upper/own ]", 0);
    /* More than memory would hold, and no more than the disk may have. */
    check_sh(&box, "head -c 10M /dev/zero > /workspace/some", 0);
    check_sh(&box, "! head -c 30M /dev/zero > /workspace/more && rm /workspace/*", INIT_AS_ROOT);
    CHECK(strstr(mount_options(box.pid, "/workspace"), "nosuid"));
    CHECK(strstr(mount_options(box.pid, "/workspace"), "nodev"));
    rig_destroy(&box);
    /* What a view left on the disk is in no later one. */
    for (int i = 1; i <= DISK_VIEWS_MAX; i++) {
        struct rig_box later = rig_create(spec, "box");
        CHECK_INT(door_leave_path(state, dir, O_RDONLY | O_DIRECTORY, ticket), 0);
        CHECK_INT(mount_ticket("box", ticket, "/workspace", BOX_MOUNT_VIEW),
                  i < DISK_VIEWS_MAX ? 0 : ENOSPC);
        if (i < DISK_VIEWS_MAX)
            check_sh(&later, "[ $(ls -A /workspace) = own ]", 0);
        rig_destroy(&later);
    }
    rig_close();
}

/* Root shows whose directory it is: its owner's files, and not root's, are the agent's. */
TEST(a_view_shows_the_files_of_the_directorys_owner_to_root)
{
    const char *state = rig_open(), *dir = test_dir();
    const uid_t uid = 54321;
    char path[4096];
    uint8_t ticket[16];

    CHECK(chmod(dir, 0755) == 0);
    snprintf(path, sizeof(path), "%s/theirs", dir);
    autoclose int theirs = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    snprintf(path, sizeof(path), "%s/roots", dir);
    autoclose int roots = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    CHECK(theirs >= 0 && roots >= 0 && fchown(theirs, uid, uid) == 0 && chown(dir, uid, uid) == 0);
    struct rig_box box = rig_create(rig_spec("box"), "box");
    CHECK_INT(door_leave_path(state, dir, O_RDONLY | O_DIRECTORY, ticket), 0);
    CHECK_INT(mount_ticket("box", ticket, "/mnt", BOX_MOUNT_VIEW), 0);
    check_sh(&box, "echo x > /mnt/theirs && ! cat /mnt/roots && echo y > /mnt/new", 0);
    rig_destroy(&box);
    rig_close();
}

/* Another user of the machine at the door; what is answered there. */
static int leave_as(const char *state, const char *dir, uid_t uid, uint8_t ticket[16])
{
    int ends[2], status = 0;
    struct door_left left = { .error = -1 };

    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct door_leave leave = { .magic = DOOR_MAGIC };
        int fd =
            setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0 ? -1 : door_connect(state);
        int open_dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        if (fd >= 0 && open_dir >= 0) {
            door_say(fd, &leave, sizeof(leave), &open_dir, 1);
            (void)!recv(fd, &left, sizeof(left), 0);
        }
        (void)!write(ends[1], &left, sizeof(left));
        _exit(0);
    }
    close(ends[1]);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    for (int i = 0; i < 400 && read(ends[0], &left, sizeof(left)) != (ssize_t)sizeof(left); i++) {
        struct pollfd waits[BOXES_WAITS];
        unsigned count = boxes_waits(waits);

        poll(waits, count, 5);
        boxes_woken(waits, count);
        boxes_run_due();
    }
    close(ends[0]);
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    while (!jobs_idle()) /* which nobody has waited for meanwhile */
        rig_pump(1);
    if (ticket)
        memcpy(ticket, left.ticket, 16);
    return left.error;
}

TEST(what_others_own_stays_theirs)
{
    const char *state = rig_open(), *dir = test_dir();
    char path[4096];
    struct stat st;
    uint8_t ticket[16];
    const uid_t uid = 54321;

    CHECK(chmod(state, 0711) == 0 && chmod(dir, 0755) == 0 && chown(dir, uid, uid) == 0);
    snprintf(path, sizeof(path), "%s/roots", dir);
    autoclose int file = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    snprintf(path, sizeof(path), "%s/closed", dir);
    autoclose int secret = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    CHECK(file >= 0 && secret >= 0);
    snprintf(path, sizeof(path), "%s/neighbours", dir);
    autoclose int next = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    CHECK(next >= 0 && fchown(next, uid + 1, uid + 1) == 0); /* the map has one user, not some */
    struct rig_box box = rig_create(rig_spec("box"), "box");
    CHECK_INT(leave_as(state, dir, uid, ticket), 0);
    CHECK_INT(mount_ticket("box", ticket, "/bind", 0), 0);
    check_sh(&box,
             "cat /bind/roots && ! cat /bind/closed && ! sh -c 'echo x > /bind/roots' &&"
             "! chmod 666 /bind/roots && echo mine > /bind/mine",
             0);
    check_sh(&box,
             "! cat /bind/closed && ! sh -c 'echo x > /bind/roots' &&"
             "! chown 0 /bind/roots && ! chmod 666 /bind/closed && ! cat /bind/neighbours",
             INIT_AS_ROOT);
    snprintf(path, sizeof(path), "%s/mine", dir);
    CHECK_INT(stat(path, &st), 0);
    CHECK(st.st_uid == uid && st.st_gid == uid);
    rig_destroy(&box);
    rig_close();
}

TEST(what_cannot_be_left_is_refused)
{
    const char *state = rig_open();
    char path[4096];

    CHECK_INT(door_leave_path(state, "/usr", O_PATH | O_DIRECTORY, NULL), EBADF);
    CHECK_INT(door_leave_path(state, "/etc/passwd", O_RDONLY, NULL), ENOTDIR);
    CHECK_INT(door_leave_path(state, "/dev/null", O_RDWR, NULL), EBADF);
    CHECK_INT(door_leave_path(state, "/proc", O_RDONLY | O_DIRECTORY, NULL), EPERM);
    CHECK_INT(door_leave_path(state, "/proc/self/fd", O_RDONLY | O_DIRECTORY, NULL), EPERM);
    CHECK_INT(door_leave_path(state, "/sys/kernel", O_RDONLY | O_DIRECTORY, NULL), EPERM);
    CHECK_INT(door_leave_path(state, state, O_RDONLY | O_DIRECTORY, NULL), EPERM);
    snprintf(path, sizeof(path), "%s/boxes", state);
    CHECK_INT(door_leave_path(state, path, O_RDONLY | O_DIRECTORY, NULL), EPERM);
    CHECK_INT(door_leave_path(state, "/usr", O_RDONLY | O_DIRECTORY, NULL), 0);
    rig_close();
    snprintf(path, sizeof(path), "%s/door.sock", state);
    CHECK(access(path, F_OK) < 0);
}

TEST(callers_that_talk_nonsense_get_no_ticket)
{
    const char *state = rig_open();
    struct door_leave leave = { .magic = DOOR_MAGIC };
    autoclose int dir = open("/usr", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    rig_settle();
    int two[] = { dir, dir }, before = rig_entries("/proc/self/fd"), fd;
    char junk[64] = "junk";

    fd = door_connect(state);
    door_say(fd, &leave, sizeof(leave), NULL, 0);
    CHECK_INT(door_answer(fd, NULL), EINVAL);
    fd = door_connect(state);
    door_say(fd, &leave, sizeof(leave), two, 2);
    CHECK_INT(door_answer(fd, NULL), EINVAL);
    fd = door_connect(state);
    door_say(fd, junk, sizeof(junk), &dir, 1);
    CHECK_INT(door_answer(fd, NULL), EINVAL);
    fd = door_connect(state);
    door_say(fd, &leave, sizeof(leave) - 1, &dir, 1);
    CHECK_INT(door_answer(fd, NULL), EINVAL);
    leave.zero = 1;
    fd = door_connect(state);
    door_say(fd, &leave, sizeof(leave), &dir, 1);
    CHECK_INT(door_answer(fd, NULL), EINVAL);
    rig_pump(5);
    CHECK_INT(rig_entries("/proc/self/fd"), before);
    rig_close();
}

TEST(silent_callers_hold_up_nobody)
{
    const char *state = rig_open();
    int silent[DOOR_CALLERS * 3];

    for (size_t i = 0; i < ARRAY_LEN(silent); i++) {
        CHECK((silent[i] = door_connect(state)) >= 0);
        rig_pump(1);
    }
    CHECK_INT(door_leave_path(state, "/usr", O_RDONLY | O_DIRECTORY, NULL), 0);
    for (size_t i = 0; i < ARRAY_LEN(silent); i++)
        close(silent[i]);
    rig_close();
}

/* Connections of another user, who says nothing; those that were refused are answered so. */
static int knock_as(const char *state, uid_t uid)
{
    /* Who connects is what counts, and a child would be somebody to wait for. */
    CHECK(seteuid(uid) == 0);
    int fd = door_connect(state);
    CHECK(seteuid(0) == 0);
    return fd;
}

static unsigned knocks_refused(const char *state, uid_t uid, unsigned count)
{
    static int fds[128];
    struct door_left left;
    unsigned answered = 0;

    for (unsigned i = 0; i < count; i++) {
        CHECK((fds[i] = knock_as(state, uid)) >= 0);
        struct pollfd waits[BOXES_WAITS];
        unsigned n = boxes_waits(waits);

        boxes_woken(waits, poll(waits, n, 0) > 0 ? n : 0);
    }
    for (unsigned i = 0; i < count; i++) {
        if (recv(fds[i], &left, sizeof(left), MSG_DONTWAIT) == (ssize_t)sizeof(left)) {
            CHECK_INT(left.error, EAGAIN);
            answered++;
        }
        close(fds[i]);
    }
    for (int i = 0; i < test_patience(400) && (door_busy() || !jobs_idle()); i++)
        rig_pump(5);
    CHECK(!door_busy());
    return answered;
}

TEST(a_user_has_a_part_of_the_door_and_not_all_of_it)
{
    const char *state = rig_open();
    const uid_t uid = 54321;

    CHECK(chmod(state, 0711) == 0);
    rig_settle();
    int fds = rig_entries("/proc/self/fd");
    CHECK_INT(knocks_refused(state, uid, DOOR_PLACES_EACH), 0);
    CHECK_INT(knocks_refused(state, uid + 1, DOOR_PLACES_EACH + 1), 1);
    CHECK_INT(knocks_refused(state, 0, DOOR_PLACES), 0); /* root's own */
    CHECK_INT(knocks_refused(state, 0, DOOR_PLACES + 1), 1);
    rig_without("door_share");
    CHECK_INT(knocks_refused(state, uid + 2, DOOR_PLACES_EACH + 1), 0);
    rig_without("");
    rig_settle();
    CHECK_INT(rig_entries("/proc/self/fd"), fds); /* of those that were refused nothing is left */
    rig_close();
}

/* Silent ones of this user; how many of all are heard by a child then. */
static unsigned heard_with(const char *state, uid_t uid, unsigned count, int *fds)
{
    struct pollfd waits[BOXES_WAITS];

    for (unsigned i = 0; i < count; i++) {
        CHECK((fds[i] = knock_as(state, uid)) >= 0);
        unsigned n = boxes_waits(waits);

        boxes_woken(waits, poll(waits, n, 0) > 0 ? n : 0);
    }
    door_run_due(0);
    return jobs_waits(waits);
}

TEST(a_user_is_heard_by_some_children_and_not_by_all)
{
    const char *state = rig_open();
    const uid_t uid = 54330;
    int fds[32];

    CHECK(chmod(state, 0711) == 0);
    rig_settle();
    CHECK_INT(heard_with(state, uid, DOOR_CALLERS_EACH, fds), DOOR_CALLERS_EACH);
    CHECK_INT(heard_with(state, uid, 1, fds + 4), DOOR_CALLERS_EACH);
    CHECK_INT(heard_with(state, uid + 1, 2, fds + 5), DOOR_CALLERS_OTHERS);
    CHECK_INT(heard_with(state, uid + 1, 1, fds + 7), DOOR_CALLERS_OTHERS);
    CHECK_INT(heard_with(state, 0, 2, fds + 8), DOOR_CALLERS);
    CHECK_INT(heard_with(state, 0, 1, fds + 10), DOOR_CALLERS);
    for (int i = 0; i < 11; i++)
        close(fds[i]);
    for (int i = 0; i < test_patience(400) && (door_busy() || !jobs_idle()); i++)
        rig_pump(5);
    CHECK(!door_busy()); /* each had its turn */
    rig_close();
}

TEST(a_user_knocks_so_often_in_a_second_and_no_more)
{
    const char *state = rig_open();
    const uid_t uid = 54320;
    unsigned refused = 0;

    CHECK(chmod(state, 0711) == 0);
    for (int guarded = 1; guarded >= 0; guarded--) {
        for (int tries = 0; tries < 20; tries++) { /* until all were in one second */
            int64_t second = clock_mono_ms() / 1000;

            refused = 0;
            if (guarded)
                rig_without("door_share");
            else
                rig_without("door_share,door_rate");
            refused = knocks_refused(state, uid, DOOR_KNOCKS_PER_SECOND + 1);
            if (second == clock_mono_ms() / 1000)
                break;
        }
        CHECK_INT(refused, guarded);
    }
    rig_without("");
    CHECK_INT(door_leave_path(state, "/usr", O_RDONLY | O_DIRECTORY, NULL), 0);
    rig_close();
}

TEST(others_leave_some_tickets)
{
    const char *state = rig_open();
    const uid_t uid = 54400;

    CHECK(chmod(state, 0711) == 0);
    for (int i = 0; i < DOOR_TICKETS_OTHERS; i++) {
        if (i == DOOR_TICKETS_EACH)
            CHECK_INT(leave_as(state, "/usr", uid, NULL), EAGAIN);
        door_forget_knocks();
        CHECK_INT(leave_as(state, "/usr", uid + (i >= DOOR_TICKETS_EACH), NULL), 0);
    }
    CHECK_INT(leave_as(state, "/usr", uid + 2, NULL), EAGAIN);
    CHECK_INT(door_leave_path(state, "/usr", O_RDONLY | O_DIRECTORY, NULL), 0);
    rig_close();
}

/* Those that were used take nobody's place. */
TEST(more_directories_are_used_in_a_minute_than_may_wait)
{
    const char *state = rig_open(), *dir = test_dir();
    uint8_t ticket[16];

    struct rig_box box = rig_create(rig_spec("box"), "box");
    for (unsigned i = 0; i < 2 * DOOR_TICKETS_MAX; i++) {
        CHECK_INT(door_leave_path(state, dir, O_RDONLY | O_DIRECTORY, ticket), 0);
        CHECK_INT(mount_ticket("box", ticket, "/mnt", 0), 0);
    }
    CHECK_INT(mount_ticket("box", ticket, "/mnt", 0), EBUSY);
    rig_destroy(&box);
    rig_close();
}

TEST(tickets_are_bounded_and_end)
{
    const char *state = rig_open();
    uint8_t first[16], ticket[16];
    struct rig_box box = rig_create(rig_spec("box"), "box");

    CHECK_INT(door_leave_path(state, "/usr", O_RDONLY | O_DIRECTORY, first), 0);
    for (int i = 1; i < DOOR_TICKETS_MAX; i++) {
        CHECK_INT(door_leave_path(state, "/usr", O_RDONLY | O_DIRECTORY, ticket), 0);
        CHECK(memcmp(first, ticket, 16) != 0);
    }
    CHECK_INT(door_leave_path(state, "/usr", O_RDONLY | O_DIRECTORY, ticket), EAGAIN);
    int fds = rig_entries("/proc/self/fd");
    door_run_due(clock_mono_ms() + DOOR_TICKET_MS + 1);
    CHECK_INT(rig_entries("/proc/self/fd"), fds - DOOR_TICKETS_MAX);
    CHECK_INT(mount_ticket("box", first, "/bind", 0), ETIMEDOUT);
    CHECK_INT(door_leave_path(state, "/usr", O_RDONLY | O_DIRECTORY, ticket), 0);
    CHECK_INT(mount_ticket("box", ticket, "/bind", BOX_MOUNT_READ_ONLY), 0);
    check_sh(&box, "ls /bind/bin/sh", 0);
    rig_destroy(&box);
    rig_close();
}

TEST(a_refused_mount_closes_nothing_of_others)
{
    rig_open();
    disk_made(5, 0, 0);
    struct wire_msg spec = rig_spec("box");
    spec.spec.io_bytes = 1 << 20;
    struct rig_heard heard = rig_ask(&spec);
    struct rig_box box = rig_made("box", &heard);
    CHECK(fcntl(0, F_GETFD) >= 0);
    cgroup_io_blocks("/nonexistent"); /* as if there were 256 disks */
    CHECK_INT(mount_disk("box", 5, "/mnt", 0), ENOTSUP);
    cgroup_io_blocks("/sys/block");
    CHECK(fcntl(0, F_GETFD) >= 0);
    rig_destroy(&box);
    rig_close();
}
