/*
 * Real boxes from inside: every escape that the probe (tests/escape/probe.c) tries is refused, to
 * both users; every limit holds; and for each guard a box is made without it, in which the probe
 * that watches it must see the difference. So no probe holds by accident.
 */
#include "seccomp/seccomp.h"
#include "warden/disk_rig.h"

static struct rig_box probed_box(uint64_t skips)
{
    box_skips = skips;
    struct rig_box box = rig_create(rig_spec("probe"), "probe");
    box_skips = 0;
    rig_bring_probe(&box);
    return box;
}

TEST(nothing_escapes_as_either_user)
{
    rig_open();
    struct rig_box box = probed_box(0);

    for (int root = 0; root < 2; root++) {
        struct rig_ran *ran = rig_probe(&box, root ? INIT_AS_ROOT : 0);

        if (ran->code != 0 || strstr(ran->out, "BROKEN") || !strstr(ran->out, " probes, 0 broken"))
            test_fail(__FILE__, __LINE__, "as %s:\n%s", root ? "root" : "agent", ran->out);
    }
    rig_destroy(&box);
    rig_close();
}

/* ---- nesting ---- */

/* What is open inside when tools are to make sandboxes of their own; all else holds. */
static const char *const open_when_nesting[] = { "unshare_user", "clone_user", "masked", "proc_sys",
                                                 NULL };

static struct rig_box nesting_box(void)
{
    struct wire_msg spec = rig_spec("probe");

    spec.spec.profile = SECCOMP_NESTING;
    return rig_create(spec, "probe");
}

TEST(tools_inside_make_sandboxes_where_that_was_asked_for)
{
    static const char script[] =
        "unshare --user --map-root-user --mount --pid --fork --net --uts sh -c '"
        "hostname inner && mount -t tmpfs t /mnt && mount -t proc p /proc && touch /mnt/x && "
        "echo $$ $(hostname) $(ls /mnt)' 2>&1; hostname";
    rig_open();
    struct rig_box box = nesting_box();

    for (int root = 0; root < 2; root++)
        CHECK_STR(rig_sh(&box, script, root ? INIT_AS_ROOT : 0)->out, "1 inner x\nprobe\n");
    struct rig_ran *ran =
        rig_sh(&box,
               "test -x /usr/bin/bwrap || { echo none; exit; };"
               "bwrap --ro-bind / / --dev /dev --proc /proc --tmpfs /tmp "
               "--unshare-all sh -c 'echo $(id -u) $(ls /proc | grep -c ^1$)' 2>&1",
               0);
    CHECK(strcmp(ran->out, "1000 1\n") == 0 || strcmp(ran->out, "none\n") == 0);
    CHECK_INT(rig_name(WIRE_BOX_APPLIED, "probe").msg.applied.nested, 1);
    rig_destroy(&box);
    /* And nowhere else. */
    box = rig_create(rig_spec("probe"), "probe");
    CHECK(rig_sh(&box, "unshare --user true", 0)->code != 0);
    CHECK_INT(rig_name(WIRE_BOX_APPLIED, "probe").msg.applied.nested, 0);
    rig_destroy(&box);
    rig_close();
}

/* Its root covers the one that it was put together in; whoever is root of a copy may not uncover.
 */
TEST(what_lies_beneath_the_root_stays_there)
{
    static const char script[] = "unshare --user --map-root-user --mount sh -c '"
                                 "umount / && echo off; umount -l / && echo off; "
                                 "mount --move / /mnt && echo moved; chroot .. ls -d /none /empty; "
                                 "chroot /tmp/../.. /usr/bin/ls -d /none /empty' 2>/dev/null; "
                                 "ls -d /none /empty /lower /disk /run/up 2>/dev/null; "
                                 "grep -c . /proc/self/mountinfo";
    char mounts[32];

    rig_open();
    struct rig_box box = nesting_box();
    snprintf(mounts, sizeof(mounts), "%u\n",
             rig_name(WIRE_BOX_APPLIED, "probe").msg.applied.mounts);
    for (int root = 0; root < 2; root++)
        CHECK_STR(rig_sh(&box, script, root ? INIT_AS_ROOT : 0)->out, mounts);
    rig_destroy(&box);
    rig_close();
}

TEST(nesting_opens_what_it_must_and_nothing_else)
{
    rig_open();
    struct rig_box box = nesting_box();

    rig_bring_probe(&box);
    rig_check_probe(&box, 0, open_when_nesting);
    rig_check_probe(&box, INIT_AS_ROOT, open_when_nesting);
    rig_destroy(&box);
    rig_close();
}

/* What debuggers call, and still nothing of all this. */
TEST(nothing_escapes_with_tools_that_trace)
{
    static const char *const none[] = { NULL };
    rig_open();
    struct wire_msg spec = rig_spec("probe");
    spec.spec.profile = SECCOMP_DEBUG;
    struct rig_box box = rig_create(spec, "probe");

    CHECK_INT(rig_sh(&box, "perl -e 'exit(syscall(101, 0) != 0)'", 0)->code, 0); /* it is open */
    rig_bring_probe(&box);
    rig_check_probe(&box, 0, none);
    rig_check_probe(&box, INIT_AS_ROOT, none);
    rig_destroy(&box);
    rig_close();
}

/* The same with everything that may be added: a disk, a volume, /sys, our own program. */
TEST(nothing_escapes_from_a_box_with_everything)
{
    rig_open();
    disk_made(1, 100 * MIB, 0);
    disk_made(2, 100 * MIB, 0);
    boxes_tool(open("/usr/bin/true", O_PATH | O_CLOEXEC));
    struct wire_msg spec = rig_spec("probe");
    spec.spec.upper = 1;
    spec.spec.flags = BOX_WITH_SYS | BOX_WITH_TOOL;
    struct rig_box box = rig_create(spec, "probe");
    CHECK_INT(mount_disk("probe", 2, "/vol", 0), 0);
    rig_bring_probe(&box);

    for (int root = 0; root < 2; root++) {
        struct rig_ran *ran = rig_probe(&box, root ? INIT_AS_ROOT : 0);

        if (ran->code != 0 || strstr(ran->out, "BROKEN") || !strstr(ran->out, " probes, 0 broken"))
            test_fail(__FILE__, __LINE__, "as %s:\n%s", root ? "root" : "agent", ran->out);
    }
    rig_destroy(&box);
    close(box_host.tool_fd);
    boxes_tool(-1);
    rig_close();
}

#define BIT(step) (UINT64_C(1) << (step))

/* Without the guard, these are seen to be broken. */
static void check_missed(uint64_t skips, uint32_t flags, const char *const *names)
{
    rig_open();
    struct rig_box box = probed_box(skips);
    struct rig_ran *ran = rig_probe(&box, flags);

    for (; *names; names++) {
        char line[64];

        snprintf(line, sizeof(line), "BROKEN %s ", *names);
        if (!strstr(ran->out, line))
            test_fail(__FILE__, __LINE__, "%s held without its guard:\n%s", *names, ran->out);
    }
    rig_destroy(&box);
    rig_close();
}

#define MISSED(test, skips, flags, ...)                                                            \
    TEST(test)                                                                                     \
    {                                                                                              \
        const char *const names[] = { __VA_ARGS__, NULL };                                         \
        check_missed(skips, flags, names);                                                         \
    }

MISSED(without_seccomp_much_is_open, BIT(BOX_STEP_SECCOMP), 0, "filtered", "io_uring",
       "clone3_hidden", "add_a_key", "keyctl_get", "vsock", "entry_32", "persona", "lease")
MISSED(without_no_new_privs, BIT(BOX_STEP_NNP) | BIT(BOX_STEP_LANDLOCK) | BIT(BOX_STEP_SECCOMP), 0,
       "no_new_privs")
MISSED(without_masks, BIT(BOX_STEP_MASKS), 0, "masked")
MISSED(without_a_network_of_its_own, BIT(BOX_STEP_ENTER_NETNS), 0, "only_loopback")
MISSED(without_a_cgroup_namespace, BIT(BOX_STEP_CGROUPNS), 0, "own_cgroup")
MISSED(without_resource_limits, BIT(BOX_STEP_RLIMITS), 0, "no_core", "timers")
MISSED(without_an_oom_score, BIT(BOX_STEP_OOM), 0, "oom_score")
MISSED(without_a_hostname, BIT(BOX_STEP_HOSTNAME), 0, "own_name")

/*
 * What a score was set to by somebody with CAP_SYS_RESOURCE is the least that others can go back
 * to. Root of a container has none to try it with; so this is the order, as faults tell it.
 */
TEST(the_oom_score_is_set_while_that_makes_it_the_least)
{
    int score = 0, overlay = 0, n = 0;
    struct rig_heard heard;

    rig_open();
    do {
        struct wire_msg spec = rig_spec("order");

        box_fault_in = ++n;
        heard = rig_ask(&spec);
        box_fault_in = 0;
        if (heard.msg.status && heard.msg.created.step == BOX_STEP_OOM)
            score = n;
        if (heard.msg.status && heard.msg.created.step == BOX_STEP_OVERLAY && !overlay)
            overlay = n; /* the first thing it does is to drop that */
        rig_settle();
    } while (heard.msg.status);
    struct rig_box box = rig_made("order", &heard);
    rig_destroy(&box);
    CHECK(score && overlay && score < overlay);
    rig_close();
}

/* Process 1 itself; its commands drop them a second time. */
TEST(without_dropped_capabilities)
{
    rig_open();
    box_skips = BIT(BOX_STEP_CAPS);
    struct rig_box box = rig_create(rig_spec("probe"), "probe");
    box_skips = 0;
    struct rig_heard heard = rig_name(WIRE_BOX_APPLIED, "probe");
    CHECK_INT(heard.msg.applied.caps[BOX_CAPS_PERMITTED] >> 21 & 1, 1);
    rig_destroy(&box);
    rig_close();
}

TEST(without_a_user_namespace)
{
    rig_open();
    box_skips = BIT(BOX_STEP_ENTER_USERNS);
    struct rig_box box = rig_create(rig_spec("probe"), "probe");
    box_skips = 0;
    struct rig_ran *ran = rig_sh(&box, "cat /proc/self/uid_map", 0);
    CHECK_INT(strtoul(strchr(ran->out, '0') + 1, NULL, 10), 0); /* the host's own ids */
    rig_destroy(&box);
    rig_close();
}

static int unshare_user(uint64_t skips)
{
    pool_empty(); /* the one that it gets is made without, too */
    box_skips = skips;
    struct rig_box box = rig_create(rig_spec("probe"), "probe");
    box_skips = 0;
    int code = rig_sh(&box, "unshare --user true", 0)->code;
    rig_destroy(&box);
    pool_empty();
    return code;
}

/* By the filter, and by a limit of the user namespace's own. */
TEST(further_user_namespaces_are_off_twice)
{
    rig_open();
    boxes_pool(0);
    CHECK(unshare_user(0) != 0);
    CHECK(unshare_user(BIT(BOX_STEP_SECCOMP)) != 0);
    CHECK(unshare_user(BIT(BOX_STEP_USERNS)) != 0);
    CHECK_INT(unshare_user(BIT(BOX_STEP_SECCOMP) | BIT(BOX_STEP_USERNS)), 0);
    boxes_pool(4);
    rig_close();
}

TEST(without_cgroups_nothing_is_counted)
{
    rig_open();
    box_skips = BIT(BOX_STEP_ENTER_CGROUP);
    struct rig_box box = rig_create(rig_spec("probe"), "probe");
    box_skips = 0;
    CHECK_INT(rig_name(WIRE_BOX_STAT, "probe").msg.usage.pids, 0);
    rig_destroy(&box);
    box = rig_create(rig_spec("probe"), "probe");
    CHECK_INT(rig_name(WIRE_BOX_STAT, "probe").msg.usage.pids, 1);
    rig_destroy(&box);
    rig_close();
}

/* ---- the table of mounts ---- */

/* What of its file system the host has as its root: "" for all of it, or a subvolume, or a
 * directory. */
static const char *host_root(void)
{
    static char root[256];
    autoclose int fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
    FILE *file = fdopen(take_fd(&fd), "r");
    char line[1024], at[256], point[256];

    CHECK(file);
    while (fgets(line, sizeof(line), file))
        if (sscanf(line, "%*s %*s %*s %255s %255s", at, point) == 2 && strcmp(point, "/") == 0)
            snprintf(root, sizeof(root), "%s", strcmp(at, "/") == 0 ? "" : at);
    fclose(file);
    return root;
}

static void check_mount_line(char *line, const char *state)
{
    static const char *const points[] = { "/", "/usr", "/dev", "/dev/pts", "/dev/shm", "/tmp" };
    static const char *const roots[] = { "/",     "/usr",   "/up/shm", "/up/tmp",
                                         "/none", "/empty", "/sys" };
    char root[256], point[256];
    bool known = false;

    CHECK(!strstr(line, state));
    CHECK_INT(sscanf(line, "%*s %*s %*s %255s %255s", root, point), 2);
    for (size_t i = 0; i < ARRAY_LEN(points); i++)
        known |= strcmp(point, points[i]) == 0;
    if (!known && strncmp(point, "/proc", 5) != 0)
        test_fail(__FILE__, __LINE__, "%s", line);
    known = false;
    /* The kernel names the host's own root before /usr where that is not the whole file system. */
    const char *prefix = strcmp(point, "/usr") == 0 ? host_root() : "";
    size_t skip = strncmp(root, prefix, strlen(prefix)) == 0 ? strlen(prefix) : 0;
    for (size_t i = 0; i < ARRAY_LEN(roots); i++)
        known |= strcmp(root + skip, roots[i]) == 0;
    if (!known)
        test_fail(__FILE__, __LINE__, "%s", line);
}

TEST(the_table_of_mounts_has_ours_alone_and_names_no_path_of_the_host)
{
    const char *state = rig_open();
    struct rig_box box = rig_create(rig_spec("mounts"), "mounts");
    struct rig_ran *ran = rig_sh(&box, "cat /proc/self/mountinfo", 0);
    unsigned lines = 0;

    CHECK_INT(ran->code, 0);
    for (char *line = ran->out, *end; (end = strchr(line, '\n')); line = end + 1, lines++) {
        *end = 0;
        check_mount_line(line, state);
    }
    CHECK(lines > 6);
    rig_destroy(&box);
    rig_close();
}

TEST(boxes_begin_in_a_mount_namespace_with_one_mount)
{
    int talk[2];
    char path[64], byte;

    if (geteuid() != 0)
        test_skip("a mount namespace needs root");
#ifdef __SANITIZE_THREAD__
    test_skip("its own thread keeps a process from entering a mount namespace");
#endif
    autoclose int lean = lean_make();
    CHECK(lean >= 0 && pipe2(talk, O_CLOEXEC) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(talk[0]);
        if (lean_enter(lean) < 0)
            _exit(1);
        (void)!write(talk[1], "", 1);
        pause();
    }
    close(talk[1]);
    CHECK_INT(read(talk[0], &byte, 1), 1);
    close(talk[0]);
    snprintf(path, sizeof(path), "/proc/%d/mountinfo", (int)pid);
    CHECK_INT(rig_lines(path), 1);
    snprintf(path, sizeof(path), "/proc/%d/root", (int)pid);
    CHECK_INT(rig_entries(path), 6);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* ---- where a command starts ---- */

TEST(a_working_directory_is_found_inside_or_refused)
{
    rig_open();
    struct rig_box box = rig_create(rig_spec("cwd"), "cwd");
    static const char *const refused[] = { "/proc",       "/proc/self/fd", "/proc/self/cwd",
                                           "/dev",        "/dev/shm",      "/sys",
                                           "/nowhere",    "/tmp/to-proc",  "/proc/1/root",
                                           "/etc/passwd", "/root" };

    CHECK_INT(rig_sh(&box, "ln -s /proc /tmp/to-proc; ln -s ../../../../.. /tmp/up", 0)->code, 0);
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        const char *texts[] = { "/bin/pwd", refused[i] };
        struct rig_ran *ran = rig_finish(&box, rig_start(&box, texts, 1, 0, 0));

        if (ran->error == 0 || ran->step != INIT_STEP_CWD)
            test_fail(__FILE__, __LINE__, "%s was let in: %s", refused[i], ran->out);
    }
    const char *up[] = { "/bin/ls", "/tmp/up" };
    struct rig_ran *ran = rig_finish(&box, rig_start(&box, up, 1, 0, 0));
    CHECK_INT(ran->code, 0);
    CHECK(strstr(ran->out, "workspace")); /* the box's own root */
    rig_destroy(&box);
    rig_close();
}

/* ---- limits ---- */

TEST(a_fork_bomb_meets_its_limit)
{
    rig_open();
    struct rig_box box = rig_create(rig_spec("bomb"), "bomb");
    struct rig_ran *ran =
        rig_sh(&box, "i=0; while [ $i -lt 200 ]; do sleep 2 & i=$((i+1)); done; wait; echo all", 0);

    CHECK(!strstr(ran->out, "all") || ran->code != 0);
    CHECK(rig_name(WIRE_BOX_STAT, "bomb").msg.usage.pids <= 64);
    rig_destroy(&box);
    rig_close();
}

TEST(too_much_memory_is_told_from_a_kill)
{
    rig_open();
    struct wire_msg spec = rig_spec("mem");
    spec.spec.memory = 32u << 20;
    struct rig_box box = rig_create(spec, "mem");

    CHECK_INT(rig_sh(&box, "kill -9 $$", 0)->signal, SIGKILL);
    CHECK_INT(rig_name(WIRE_BOX_STAT, "mem").msg.usage.oom_kills, 0);
    rig_sh(&box, "head -c 64M /dev/zero | tail", 0);
    CHECK(rig_name(WIRE_BOX_STAT, "mem").msg.usage.oom_kills > 0);
    CHECK_INT(rig_sh(&box, "exit 3", 0)->code, 3); /* process 1 was spared */
    rig_destroy(&box);
    rig_close();
}

/* The same where nothing counts: it is their guards that these limits hold by. */
TEST(without_their_guards_processes_memory_and_descriptors_have_no_end)
{
    rig_open();
    struct wire_msg spec = rig_spec("free");
    spec.spec.memory = 32u << 20;
    spec.spec.pids = 16;
    spec.spec.nofile = 32;
    box_skips = BIT(BOX_STEP_ENTER_CGROUP) | BIT(BOX_STEP_RLIMITS);
    struct rig_box box = rig_create(spec, "free");
    box_skips = 0;
    struct rig_ran *ran =
        rig_sh(&box, "i=0; while [ $i -lt 40 ]; do sleep 1 & i=$((i+1)); done; wait; echo all", 0);
    CHECK_STR(ran->out, "all\n");
    CHECK_STR(rig_sh(&box, "head -c 48M /dev/zero | tail | wc -c", 0)->out, "50331648\n");
    CHECK(strtoul(rig_sh(&box, "ulimit -Hn", 0)->out, NULL, 10) > 32);
    rig_destroy(&box);
    rig_close();
}

TEST(a_full_disk_is_full_inside)
{
    rig_open();
    struct wire_msg spec = rig_spec("disk");
    spec.spec.disk = 4u << 20;
    spec.spec.inodes = 200;
    struct rig_box box = rig_create(spec, "disk");

    /* check-style: allow machine-path: the sandbox's own home */
    static const char *const places[] = { "/tmp", "/dev/shm", "/home/agent", "/workspace" };
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        char script[256];

        snprintf(script, sizeof(script),
                 "dd if=/dev/zero of=%s/f bs=64k count=128 2>&1; stat -c %%s %s/f; rm %s/f",
                 places[i], places[i], places[i]);
        struct rig_ran *ran = rig_sh(&box, script, 0);
        if (!strstr(ran->out, "No space left"))
            test_fail(__FILE__, __LINE__, "%s: %s", places[i], ran->out);
    }
    struct rig_ran *ran = rig_sh(
        &box, "i=0; while [ $i -lt 300 ] && : > /tmp/n$i; do i=$((i+1)); done; echo made $i", 0);
    CHECK(!strstr(ran->out, "made 300"));
    CHECK(strstr(ran->out, "No space left"));
    rig_destroy(&box);
    rig_close();
}

TEST(descriptors_and_terminals_are_limited)
{
    rig_open();
    struct wire_msg spec = rig_spec("fds");
    spec.spec.nofile = 32;
    struct rig_box box = rig_create(spec, "fds");
    struct rig_ran *ran = rig_sh(&box, "ulimit -Hn; ulimit -n 64 || echo refused", 0);

    CHECK(strncmp(ran->out, "32\n", 3) == 0 && strstr(ran->out, "refused"));
    rig_destroy(&box);
    spec = rig_spec("pts");
    box = rig_create(spec, "pts");
    ran = rig_sh(&box,
                 "perl -e 'my $n=0; my @k; while (open(my $f, q(+<), q(/dev/ptmx)))"
                 " { push @k, $f; $n++; last if $n > 500 } print qq($n\\n)'",
                 0);
    CHECK_INT(strtol(ran->out, NULL, 10), 64);
    rig_destroy(&box);
    rig_close();
}

TEST(a_flood_of_output_is_bounded_and_whole)
{
    rig_open();
    struct rig_box box = rig_create(rig_spec("flood"), "flood");
    struct rig_ran *ran = rig_sh(&box, "head -c 20000000 /dev/zero", 0);

    CHECK_INT(ran->code, 0);
    CHECK_INT(ran->len, 20000000);
    /* Nobody reads: the command waits, process 1 stays small. */
    const char *texts[] = { "/usr/bin/yes", "A=b", "/" };
    rig_start(&box, texts, 1, 1, 0);
    usleep(300000);
    CHECK(rig_name(WIRE_BOX_STAT, "flood").msg.usage.memory < 32u << 20);
    rig_destroy(&box);
    rig_close();
}

TEST(the_cpu_quota_holds)
{
    rig_open();
    struct wire_msg spec = rig_spec("cpu");
    spec.spec.cpu_percent = 10;
    struct rig_box box = rig_create(spec, "cpu");
    const char *texts[] = { "/bin/sh", "-c", "while :; do :; done", "A=b", "/" };

    rig_start(&box, texts, 3, 1, 0);
    uint64_t before = rig_name(WIRE_BOX_STAT, "cpu").msg.usage.cpu_us;
    usleep(1000000);
    CHECK(rig_name(WIRE_BOX_STAT, "cpu").msg.usage.cpu_us - before < 300000);
    rig_destroy(&box);
    rig_close();
}

/* Bytes in pipes are the box's memory, and its users have a share of all pipes of their own. */
TEST(pipes_are_memory_of_the_box)
{
    static const char script[] =
        "perl -e 'use Fcntl; my @k; my $sum = 0; my $block = q(x) x 65536;"
        " while (@k < 480) { pipe(my $r, my $w) or last; push @k, [$r, $w];"
        "  fcntl($w, 1031, 1 << 20); fcntl($w, F_SETFL, O_NONBLOCK);"
        "  while (my $n = syswrite($w, $block)) { $sum += $n } } print qq($sum\\n)'";
    rig_open();
    struct wire_msg spec = rig_spec("pipes");
    spec.spec.memory = 64u << 20;
    struct rig_box box = rig_create(spec, "pipes");
    struct rig_ran *ran = rig_sh(&box, script, 0);
    struct box_usage usage = rig_name(WIRE_BOX_STAT, "pipes").msg.usage;

    CHECK(ran->signal == SIGKILL || strtol(ran->out, NULL, 10) <= 64 << 20);
    CHECK(usage.memory_peak <= 64u << 20);
    CHECK(usage.memory_peak > 16u << 20); /* they were counted */
    CHECK_INT(rig_sh(&box, "exit 3", 0)->code, 3);
    CHECK(rig_name(WIRE_BOX_STAT, "pipes").msg.usage.memory < 32u << 20);
    rig_destroy(&box);
    rig_close();
}

/* ---- process 1 ---- */

/*
 * Whoever is the agent's can be stopped by the agent: also a command that has not begun, for which
 * process 1 waits, and an operation on files. Most of these are stopped somewhere.
 */
TEST(who_stops_all_others_does_not_stop_process_1)
{
    const char *stop[] = { "/usr/bin/perl", "-e", "$| = 1; print 'x'; kill 'STOP', -1 while 1",
                           "/" },
               *other[] = { "/bin/true", "/" }, *operation[] = { "ps", "/" };
    struct init_signal kill9 = { .number = SIGKILL, .tree = 1 };
    static struct rig_ran ran;

    rig_open();
    struct rig_box box = rig_create(rig_spec("stops"), "stops");
    uint32_t stopper = rig_start(&box, stop, 3, 0, 0);
    for (ran.len = 0; ran.len == 0;)
        CHECK(!rig_frame(&box, stopper, &ran));
    for (int i = 0; i < 300; i++) {
        uint32_t exec = rig_start(&box, other, 1, 0, 0);

        rig_send(&box, INIT_SIGNAL, exec, &kill9, sizeof(kill9), NULL, 0);
        CHECK_INT(rig_finish(&box, exec)->error, 0);
        exec = rig_start(&box, operation, 1, 0, INIT_BUILTIN);
        CHECK_INT(rig_finish(&box, exec)->code, 0);
    }
    rig_destroy(&box);
    rig_close();
}

TEST(a_tree_is_killed_whole)
{
    rig_open();
    struct rig_box box = rig_create(rig_spec("tree"), "tree");
    const char *texts[] = { "/bin/sh", "-c",
                            "setsid sh -c 'setsid sleep 100 & sleep 100' & sleep 100", "PATH=/bin",
                            "/" };
    struct init_signal kill9 = { .number = SIGKILL, .tree = 1 };
    uint32_t exec = rig_start(&box, texts, 3, 1, 0);

    usleep(100000);
    CHECK(rig_name(WIRE_BOX_STAT, "tree").msg.usage.pids >= 5);
    rig_send(&box, INIT_SIGNAL, exec, &kill9, sizeof(kill9), NULL, 0);
    CHECK_INT(rig_finish(&box, exec)->signal, SIGKILL);
    usleep(50000);
    CHECK_INT(rig_name(WIRE_BOX_STAT, "tree").msg.usage.pids, 1);
    rig_destroy(&box);
    rig_close();
}

TEST(garbage_ends_the_connection_and_not_the_init)
{
    rig_open();
    struct rig_box box = rig_create(rig_spec("junk"), "junk");
    char junk[300], frame[4096];

    for (int round = 0; round < 50; round++) {
        for (size_t i = 0; i < sizeof(junk); i++)
            junk[i] = (char)test_rand(256);
        CHECK(send(box.link, junk, test_rand(sizeof(junk)) + 1, MSG_NOSIGNAL) > 0);
        while (recv(box.link, frame, sizeof(frame), 0) > 0)
            ;
        close(box.link);
        close(box.pidfd);
        struct rig_heard again = rig_name(WIRE_BOX_OPEN, "junk");
        box = rig_made("junk", &again);
        fcntl(box.link, F_SETFL, 0);
    }
    CHECK_INT(rig_sh(&box, "exit 8", 0)->code, 8);
    rig_destroy(&box);
    rig_close();
}
