/*
 * Every guard of a sandbox is needed: an attack that it stops succeeds without it (guard_rig.h).
 *
 * Limits and the operations on files have theirs in limits_test.c. What a step of the making does
 * as a whole is also shown by escape_test.c, what mounts into a box that runs do by inject_test.c;
 * process 1 where it has no user of its own, and the maker of an overlay, by rootless_test.c.
 * tests/e2e/test_box_guards.py looks for guards that no attack names.
 */
#include <glob.h>
#include <sched.h>
#include <sys/shm.h>
#include <sys/sysmacros.h>
#include <sys/un.h>

#include "seccomp/seccomp.h"
#include "warden/guard_rig.h"
#include "warden/mount.h"

/* ---- the probes ---- */

/*
 * What tests/escape/probe.c tries is refused because of guards: where none stands (but for the
 * namespaces that keep the probes harmless), all of it is let through. Not here:
 */
static const char *const not_let_through[] = {
    "load_module",
    "load_module_fd",
    "kexec",
    "alg",
    "rxrpc",     /* not in every kernel */
    "real_time", /* by default, nothing in a cgroup may */
    "message_queues",
    "lock_memory", /* limits that the host may have itself */
    "become_root", /* of the agent: an_agent_is_root */
    "only_stdio",
    "stdio_is_no_file", /* where nothing leaks: what the host left open */
    "kill_1",
    "other_processes", /* the pid namespace: own_pids */
    "few_devices",
    "no_secrets",
    "mounts_tell_nothing", /* no guard: nothing else is put there */
};

TEST(no_probe_holds_by_accident)
{
    const uint64_t steps = BIT(BOX_STEP_SECCOMP) | BIT(BOX_STEP_NNP) | BIT(BOX_STEP_LANDLOCK) |
                           BIT(BOX_STEP_CAPS) | BIT(BOX_STEP_MASKS) | BIT(BOX_STEP_ENTER_NETNS) |
                           BIT(BOX_STEP_CGROUPNS) | BIT(BOX_STEP_RLIMITS) | BIT(BOX_STEP_OOM) |
                           BIT(BOX_STEP_HOSTNAME) | BIT(BOX_STEP_ENTER_USERNS);
    const char *texts[] = { "/run/atoll", "/" };
    struct wire_msg spec = rig_spec("probe");

    rig_without("usr_fixed,dev_fixed,sys_fixed,proc_sys,nosuid,command_caps");
    rig_open();
    /* As our own program is: without ids of its own, a box has nothing that it may write to. */
    autoclose int probe = rig_open_probe();
    boxes_tool(probe);
    spec.spec.flags = BOX_WITH_SYS | BOX_WITH_TOOL;
    box_skips = steps;
    struct rig_box box = rig_create(spec, "probe");
    box_skips = 0;
    struct rig_ran *ran = rig_finish(&box, rig_start(&box, texts, 1, 0, INIT_AS_ROOT));
    CHECK(strstr(ran->out, " probes, "));
    for (char *line = ran->out; (line = strstr(line, "held ")); line++) {
        bool known = false;

        for (size_t i = 0; i < ARRAY_LEN(not_let_through); i++)
            known |= strncmp(line + 5, not_let_through[i], strlen(not_let_through[i])) == 0 &&
                     line[5 + strlen(not_let_through[i])] == '\n';
        if (!known)
            test_fail(__FILE__, __LINE__, "held without any guard: %.40s", line);
    }
    rig_destroy(&box);
    boxes_tool(-1);
    rig_close();
    rig_without("");
}

/* ---- who a command is ---- */

ATTACK(root_has_more_capabilities_than_its_short_list, "bounding,capset", 0)
{
    struct rig_box box = made();
    struct rig_ran *ran = rig_sh(&box, "sed -n 's/^CapEff:.//p' /proc/self/status", INIT_AS_ROOT);
    uint64_t caps = strtoull(ran->out, NULL, 16);

    CHECK(ran->code == 0 && caps);
    rig_destroy(&box);
    return caps >> 21 & 1; /* CAP_SYS_ADMIN */
}

ATTACK(root_looks_into_process_1, "command_caps", 0)
{
    return did_in(made(), "head -c 1 /proc/1/maps", INIT_AS_ROOT);
}

/* Without descriptors or time it could neither start nor end anything. */
ATTACK(root_takes_from_process_1_what_it_needs, "saved_group", 0)
{
    return did_in(made(), "prlimit --pid 1 --nofile=100:100", INIT_AS_ROOT);
}

/* The process that was made ahead is the next command: what it is limited to is not the agent's. */
ATTACK(an_agent_limits_whoever_comes_next, "spare_user", 0)
{
    static const char all[] =
        "for p in /proc/[0-9]*; do p=${p#/proc/}; [ $p != 1 ] && "
        "[ $p != $$ ] && prlimit --pid $p --nofile=20:20 && exit 0; done; exit 1";
    struct rig_box box = made();
    bool done = false;

    for (int i = 0; i < 20 && !done; i++) {
        CHECK_INT(rig_sh(&box, "exit 0", 0)->code, 0);
        poll(NULL, 0, 20); /* it is made when nothing happens */
        done = rig_sh(&box, all, INIT_STDIN_OPEN)->code == 0;
    }
    rig_destroy(&box);
    return done;
}

ATTACK(an_operation_of_roots_looks_into_process_1, "operation_caps,file_place", 0)
{
    const char *texts[] = { "read", "/proc/1/maps", "/" };
    struct rig_box box = made();
    bool done = began(&box, texts, 2, INIT_BUILTIN | INIT_AS_ROOT);

    rig_destroy(&box);
    return done;
}

/*
 * Becoming the agent closes an operation already, unless the host says otherwise (suid_dumpable);
 * one of root's is as it was born, and for root's commands nothing else is in the way.
 */
/* With tools that trace, root may call what the filter refuses otherwise. */
ATTACK(root_traces_process_1, "command_caps", 0)
{
    struct wire_msg spec = rig_spec("probe");

    spec.spec.profile = SECCOMP_DEBUG;
    struct rig_box box = made_of(spec);
    rig_bring_probe(&box);
    bool broken = strstr(rig_probe(&box, INIT_AS_ROOT)->out, "BROKEN trace_1 ") != NULL;
    rig_destroy(&box);
    return broken;
}

ATTACK(an_operation_is_looked_into, "dumpable,operation_dumpable", 0)
{
    static const char script[] =
        "for p in /proc/[0-9]*; do test $p != /proc/1 && cmp -s $p/comm /proc/1/comm &&"
        " { head -c 1 $p/maps; exit; }; done; exit 9";
    const char *texts[] = { "read", "/etc/passwd", "/" };
    static struct rig_ran ran;
    struct rig_box box = made();
    uint32_t read = rig_start(&box, texts, 2, 0, INIT_BUILTIN | INIT_AS_ROOT | INIT_STDIN_OPEN);

    ran.len = 0;
    while (ran.len == 0 && !rig_frame(&box, read, &ran))
        ;
    CHECK(ran.len > 0); /* it has said what there is, and waits to be told how much of it to read */
    int code = rig_sh(&box, script, INIT_AS_ROOT)->code;
    CHECK(code != 9);
    rig_destroy(&box);
    return code == 0;
}

ATTACK(an_agent_is_root, "agent", 0)
{
    return did_in(made(), "test $(id -u) = 0", 0);
}

/* Who may is not asked when setuid is dead; the filter and the rules cannot do without this. */
ATTACK(a_program_of_roots_makes_the_agent_root, "nosuid",
       BIT(BOX_STEP_NNP) | BIT(BOX_STEP_LANDLOCK) | BIT(BOX_STEP_SECCOMP))
{
    struct rig_box box = made();

    CHECK_INT(rig_sh(&box,
                     "for d in /tmp /workspace; do cp /usr/bin/id $d/id && chmod 4755 $d/id; done",
                     INIT_AS_ROOT)
                  ->code,
              0);
    return did_in(box, "test $(/tmp/id -u) = 0 && test $(/workspace/id -u) = 0", 0);
}

ATTACK(two_boxes_have_the_same_ids, "own_ids", 0)
{
    struct wire_msg spec = rig_spec("other");
    struct rig_box box = made(), other = rig_create(spec, "other");
    uint32_t first = rig_name(WIRE_BOX_APPLIED, "probe").msg.applied.uid_first,
             second = rig_name(WIRE_BOX_APPLIED, "other").msg.applied.uid_first;

    rig_destroy(&box);
    rig_destroy(&other);
    return first == second;
}

/* ---- what it sees of the host ---- */

ATTACK(processes_of_the_host_are_in_sight, "own_pids", 0)
{
    char script[64];

    snprintf(script, sizeof(script), "test -d /proc/%d", (int)getpid());
    return did_in(made(), script, 0);
}

ATTACK(memory_that_programs_of_the_host_share_is_read, "own_ipc", 0)
{
    int id = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0666);
    char *at = id < 0 ? NULL : shmat(id, NULL, 0), script[128];

    CHECK(at && at != (void *)-1);
    shmctl(id, IPC_RMID, NULL); /* gone with the last who has it */
    memcpy(at, "secret", 6);
    snprintf(script, sizeof(script),
             "perl -e 'shmread(%d, my $got, 0, 6) or exit 1; exit($got ne q(secret))'", id);
    bool done = did_in(made(), script, 0);
    shmdt(at);
    return done;
}

/* In a box without a namespace for it, its name is the host's: here, one of this program's own. */
ATTACK(the_host_is_renamed, "own_uts", 0)
{
    static bool own;
    char name[65] = "";

    CHECK(own || unshare(CLONE_NEWUTS) == 0);
    own = true;
    CHECK(sethostname("outside", 7) == 0);
    struct rig_box box = made();
    rig_destroy(&box);
    CHECK(gethostname(name, sizeof(name)) == 0);
    return strcmp(name, "outside") != 0;
}

ATTACK(a_socket_of_the_host_without_a_file_is_reached, "landlock_scopes", BIT(BOX_STEP_ENTER_NETNS))
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    autoclose int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char name[32], script[256];

    if (box_host.landlock_abi < 6)
        test_skip("Landlock knows no scopes here");
    snprintf(name, sizeof(name), "atoll-escape-%d", (int)getpid());
    memcpy(at.sun_path + 1, name, strlen(name));
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&at, len) == 0 && listen(fd, 8) == 0);
    snprintf(script, sizeof(script),
             "perl -MSocket -e 'socket(my $s, AF_UNIX, SOCK_STREAM, 0) or exit 9;"
             " exit(!connect($s, pack(q(Sa*), AF_UNIX, qq(\\0%s))))'",
             name);
    return did_in(made(), script, INIT_AS_ROOT);
}

/* Those that every machine has, of what is covered; of the rest most show a box only its own. */
ATTACK(what_tells_of_the_host_is_read, "", BIT(BOX_STEP_MASKS))
{
    static const char *const looks[] = { "head -c 9 /proc/interrupts", "head -c 9 /proc/softirqs",
                                         "head -c 9 /proc/kallsyms", "ls -A /sys/fs" };
    struct wire_msg spec = rig_spec("probe");
    unsigned count = 0;

    spec.spec.flags = BOX_WITH_SYS;
    struct rig_box box = made_of(spec);
    for (size_t i = 0; i < ARRAY_LEN(looks); i++) {
        struct rig_ran *ran = rig_sh(&box, looks[i], 0);

        CHECK_INT(ran->code, 0); /* an empty file, or an empty directory */
        count += ran->len > 0;
    }
    rig_destroy(&box);
    CHECK(count == 0 || count == ARRAY_LEN(looks));
    return count;
}

ATTACK(settings_of_the_kernel_open_for_writing, "proc_sys", 0)
{
    return probe_breaks("proc_sys", INIT_AS_ROOT);
}

/* ---- what the box before left in its network ---- */

/* Is this true in one of the next boxes? There are some networks that were made before. */
static bool true_later(const char *script)
{
    static const char *const ids[] = { "a", "b", "c", "d", "e", "f" };
    struct rig_box boxes[ARRAY_LEN(ids)];
    bool is = false;

    for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
        boxes[i] = rig_create(rig_spec(ids[i]), ids[i]);
        is |= rig_sh(&boxes[i], script, 0)->code == 0;
    }
    for (size_t i = 0; i < ARRAY_LEN(ids); i++)
        rig_destroy(&boxes[i]);
    return is;
}

ATTACK(what_was_sent_is_counted_for_the_next_one, "net_counters", 0)
{
    struct rig_box box = made();

    CHECK_INT(rig_sh(&box, "bash -c 'echo > /dev/udp/127.0.0.1/9'", 0)->code, 0);
    rig_destroy(&box);
    return true_later("! grep -q '^ *lo: *0 ' /proc/net/dev");
}

ATTACK(what_could_not_be_sent_is_counted_for_the_next_one, "net_counters", 0)
{
    struct rig_box box = made();

    CHECK(rig_sh(&box, "bash -c 'echo > /dev/udp/2001:db8::1/9'", 0)->code != 0);
    rig_destroy(&box);
    return true_later("! grep -q '^Ip6OutNoRoutes[^0-9]*0$' /proc/net/snmp6");
}

/* What nobody of the box holds any more, and is still there. */
static int leave_socket(const struct rig_box *box)
{
    const struct sockaddr_un name = { .sun_family = AF_UNIX, .sun_path = "\0left" };
    autoclose int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    int fd = -1;

    CHECK(home >= 0 && setns(box->pidfd, CLONE_NEWNET) == 0);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(setns(home, CLONE_NEWNET) == 0 && fd >= 0);
    CHECK(bind(fd, (const struct sockaddr *)&name, sizeof(sa_family_t) + 5) == 0);
    return fd;
}

ATTACK(a_socket_of_the_box_before_is_there, "net_sockets", 0)
{
    struct rig_box box = made();
    autoclose int left = leave_socket(&box);

    rig_destroy(&box);
    return true_later("grep -q @left /proc/net/unix");
}

/* ---- what the host left open ---- */

#define LEAK 200
#define LEAKED "/proc/self/fd/200"

/* A directory of the host that the warden has open and forgot to close, with a file in it. */
static ino_t leak(const char *state)
{
    char path[4096];
    struct stat st;

    snprintf(path, sizeof(path), "%s/open", state);
    CHECK(chmod(state, 0755) == 0 && (mkdir(path, 0755) == 0 || errno == EEXIST));
    autoclose int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(dir >= 0 && fchmod(dir, 0755) == 0 && dup2(dir, LEAK) == LEAK && fstat(dir, &st) == 0);
    autoclose int file = openat(dir, "secret", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    CHECK(file >= 0 && fchmod(file, 0644) == 0);
    return st.st_ino;
}

ATTACK(a_descriptor_of_the_host_is_there, "inherited,descriptors", 0)
{
    leak(state);
    bool done = did_in(made(), "test -L " LEAKED, 0);

    close(LEAK);
    return done;
}

ATTACK(a_file_of_the_host_is_read_by_a_descriptor, "inherited,descriptors,landlock_files", 0)
{
    leak(state);
    bool done = did_in(made(), "cat " LEAKED "/secret", 0);

    close(LEAK);
    return done;
}

ATTACK(a_command_begins_in_a_directory_of_the_host, "inherited,descriptors,cwd_lookup,cwd_judged",
       0)
{
    const char *texts[] = { "/usr/bin/stat", "-c", "%i", ".", LEAKED };
    ino_t there = leak(state);
    struct rig_box box = made();
    struct rig_ran *ran = rig_finish(&box, rig_start(&box, texts, 4, 0, 0));
    bool done = !ran->error && strtoull(ran->out, NULL, 10) == there;

    rig_destroy(&box);
    close(LEAK);
    return done;
}

ATTACK(a_command_begins_behind_a_magic_link, "cwd_lookup", 0)
{
    const char *texts[] = { "/usr/bin/true", "/proc/self/cwd" };
    struct rig_box box = made();
    bool done = began(&box, texts, 1, 0);

    rig_destroy(&box);
    return done;
}

ATTACK(a_command_begins_among_the_kernels_own, "cwd_judged", 0)
{
    static const char *const places[] = { "/proc", "/proc/1", "/dev", "/dev/shm", "/tmp/link" };
    struct rig_box box = made();
    unsigned count = 0;

    CHECK_INT(rig_sh(&box, "ln -s ../proc/sys /tmp/link", 0)->code, 0);
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        const char *texts[] = { "/usr/bin/true", places[i] };

        count += began(&box, texts, 1, 0);
    }
    rig_destroy(&box);
    CHECK(count == 0 || count == ARRAY_LEN(places));
    return count;
}

/* What the path leads to changes all the time: it is where one has arrived that is judged. */
ATTACK(a_command_begins_where_a_swap_leads, "cwd_judged", 0)
{
    const char *texts[] = { "/bin/pwd", "/tmp/t" };
    struct rig_box box = made();
    unsigned began = 0, elsewhere = 0;

    rig_swap(&box, "/proc");
    /* On a busy machine the swaps may be so slow that none of the first hundred begins. */
    for (int i = 0; i < 100 || (began == 0 && i < 5000); i++) {
        struct rig_ran *ran = rig_finish(&box, rig_start(&box, texts, 1, 0, 0));

        began += !ran->error;
        elsewhere += !ran->error && strcmp(ran->out, "/proc\n") == 0;
    }
    CHECK(began > 0);
    rig_destroy(&box);
    return elsewhere;
}

/* Looks behind every process there is, all the time; at its end it says how often it found ours. */
static uint32_t start_grabbing(struct rig_box *box)
{
    const char *texts[] = { "/usr/bin/perl", "-e",
                            "my ($n, $got) = (0, 0); $SIG{TERM} = sub { print qq($n $got); exit };"
                            "while (1) { for my $p (glob '/proc/[0-9]*') { $n++;"
                            " my $l = readlink qq($p/exe);"
                            " $got++ if defined $l && $l !~ m(^/usr/);"
                            " $got++ if open(my $f, '+<', qq($p/exe)); } }",
                            "/" };

    return rig_start(box, texts, 3, 0, INIT_AS_ROOT);
}

static unsigned grabbed(struct rig_box *box, uint32_t exec)
{
    struct init_signal term = { .number = SIGTERM };
    unsigned tries = 0, got = 0;

    rig_send(box, INIT_SIGNAL, exec, &term, sizeof(term), NULL, 0);
    CHECK(sscanf(rig_finish(box, exec)->out, "%u %u", &tries, &got) == 2);
    CHECK(tries > 0);
    return got;
}

static size_t init_bytes(char *out, size_t size)
{
    ssize_t len = pread(box_host.init_fd, out, size, 0);

    CHECK(len > 0 && (size_t)len < size);
    return (size_t)len;
}

/*
 * Whoever becomes a command is process 1's own program until then, and an operation all its life.
 * By root and for root: with the first that becomes the agent, the kernel closes process 1 as well
 * (suid_dumpable).
 */
ATTACK(the_program_behind_commands_is_got_hold_of, "dumpable", 0)
{
    static char before[4u << 20], after[4u << 20];
    const char *command[] = { "/usr/bin/true", "/" }, *operation[] = { "stat", "/etc", "1", "/" };
    size_t len = init_bytes(before, sizeof(before));
    struct rig_box box = made();
    uint32_t grabber = start_grabbing(&box);

    for (int i = 0; i < 500; i++) {
        CHECK(began(&box, command, 1, INIT_AS_ROOT));
        CHECK(began(&box, operation, 3, INIT_BUILTIN | INIT_AS_ROOT));
    }
    unsigned got = grabbed(&box, grabber);
    rig_destroy(&box);
    CHECK(init_bytes(after, sizeof(after)) == len && memcmp(before, after, len) == 0);
    return got;
}

/* Nobody inside can reach it; this is what is left if somebody did. */
ATTACK(the_program_of_process_1_is_written, "init_sealed", 0)
{
    return pwrite(box_host.init_fd, "\x7f", 1, 0) == 1; /* the byte that is there */
}

/* ---- what is mounted ---- */

ATTACK(a_device_among_files_is_opened, "nodev", 0)
{
    struct rig_box box = made();
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/root/tmp/zero", (int)box.pid);
    fs_become(rig_name(WIRE_BOX_APPLIED, "probe").msg.applied.uid_first);
    int rc = mknod(path, S_IFCHR | 0666, makedev(1, 5)); /* as an image could have brought it */
    fs_return();
    CHECK(rc == 0 && chmod(path, 0666) == 0);
    return did_in(box, "test $(head -c 3 /tmp/zero | wc -c) = 3", 0);
}

/* With the host's own ids, as root: opened, and nothing written. */
ATTACK(programs_of_the_host_open_for_writing, "usr_fixed", BIT(BOX_STEP_ENTER_USERNS))
{
    return did_in(made(), ": >> /usr/lib/os-release", INIT_AS_ROOT);
}

ATTACK(a_name_is_made_in_dev, "dev_fixed", BIT(BOX_STEP_ENTER_USERNS))
{
    return did_in(made(), ": > /dev/evil", INIT_AS_ROOT);
}

ATTACK(our_own_program_opens_for_writing, "tool_fixed", BIT(BOX_STEP_ENTER_USERNS))
{
    struct wire_msg spec = rig_spec("probe");
    char path[4096];

    snprintf(path, sizeof(path), "%s/tool", state);
    autoclose int tool = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0755);
    CHECK(tool >= 0);
    boxes_tool(tool);
    spec.spec.flags = BOX_WITH_TOOL;
    bool done = did_in(made_of(spec), ": >> /run/atoll", INIT_AS_ROOT);
    boxes_tool(-1);
    return done;
}

/* An image that has a link where /dev belongs leads the mount elsewhere. */
ATTACK(a_link_in_an_image_leads_a_mount_elsewhere, "links", 0)
{
    struct wire_msg spec = rig_spec("probe");
    char path[4096];
    glob_t found;

    snprintf(path, sizeof(path), "%s/images/host-*/dev", state);
    CHECK(glob(path, 0, NULL, &found) == 0 && found.gl_pathc == 1);
    CHECK(rmdir(found.gl_pathv[0]) == 0 && symlink("etc", found.gl_pathv[0]) == 0);
    struct rig_heard heard = rig_ask(&spec);
    CHECK(unlink(found.gl_pathv[0]) == 0 && mkdir(found.gl_pathv[0], 0755) == 0);
    globfree(&found);
    if (heard.msg.status) {
        CHECK_INT(heard.msg.created.step, BOX_STEP_DEV);
        return false;
    }
    return did_in(rig_made("probe", &heard), "test -c /etc/null", 0);
}

ATTACK(what_the_kernel_shows_of_devices_opens_for_writing, "sys_fixed", BIT(BOX_STEP_ENTER_USERNS))
{
    struct wire_msg spec = rig_spec("probe");

    spec.spec.flags = BOX_WITH_SYS;
    return did_in(made_of(spec), "find /sys/kernel /sys/module -writable -type f | grep -q .",
                  INIT_AS_ROOT);
}

/* What every box has of its own is covered by a directory of somebody's. */
ATTACK(a_mount_covers_what_is_the_boxs_own, "target", 0)
{
    struct rig_box box = made();
    uint8_t ticket[16];

    CHECK_INT(door_leave_path(state, test_dir(), O_RDONLY | O_DIRECTORY, ticket), 0);
    bool done = mount_ticket("probe", ticket, "/proc", 0) == 0;
    rig_destroy(&box);
    return done;
}

/* Whoever may leave directories could leave the server's own, with its store and its keys. */
ATTACK(the_servers_own_files_come_into_a_box, "door_state", 0)
{
    uint8_t ticket[16];

    if (door_leave_path(state, state, O_RDONLY | O_DIRECTORY, ticket) != 0)
        return false;
    struct rig_box box = made();
    CHECK_INT(mount_ticket("probe", ticket, "/mnt", 0), 0);
    return did_in(box, "test -e /mnt/records", 0);
}

/* Not even the kernel lends those that way, as long as it is asked to change their owners. */
ATTACK(the_hosts_processes_come_into_a_box, "door_kernel,ticket_map", 0)
{
    uint8_t ticket[16];
    char script[64];

    if (door_leave_path(state, "/proc", O_RDONLY | O_DIRECTORY, ticket) != 0)
        return false;
    struct rig_box box = made();
    snprintf(script, sizeof(script), "test -d /mnt/%d", (int)getpid());
    if (mount_ticket("probe", ticket, "/mnt", 0) == 0)
        return did_in(box, script, 0);
    rig_destroy(&box);
    return false;
}

/* A box with a view of a fresh directory at /mnt; its agent's script ends with 0. */
static bool did_in_view(const char *state, const char *dir, const char *script)
{
    uint8_t ticket[16];

    CHECK_INT(door_leave_path(state, dir, O_RDONLY | O_DIRECTORY, ticket), 0);
    struct rig_box box = made();
    CHECK_INT(mount_ticket("probe", ticket, "/mnt", BOX_MOUNT_VIEW), 0);
    return did_in(box, script, 0);
}

/* What is only shown: the files of the caller, beside the view of them. */
ATTACK(a_box_writes_to_the_directory_that_it_has_a_view_of, "view_lower", 0)
{
    const char *dir = test_dir();
    char path[4096];

    snprintf(path, sizeof(path), "%s/of-the-box", dir);
    bool said = did_in_view(state, dir, "touch " VIEW_PLACE "/before/of-the-box");
    bool there = access(path, F_OK) == 0;
    unlink(path);
    return said && there;
}

/* Overlay does not say what becomes of a layer that somebody else writes to. */
ATTACK(a_box_writes_to_a_layer_of_its_view, "view_fixed", 0)
{
    return did_in_view(state, test_dir(), "touch " VIEW_PLACE "/upper/direct");
}

/* ---- what the warden believes ---- */

/* A name that leads out of where boxes are kept. */
ATTACK(a_wish_names_a_place_elsewhere, "wish", 0)
{
    char id[BOX_ID_SIZE], path[4096];
    struct rig_heard news;

    snprintf(id, sizeof(id), "../evil%d", (int)getpid());
    struct wire_msg spec = rig_spec(id);
    struct rig_heard heard = rig_ask(&spec);
    if (heard.msg.status)
        return false;
    struct rig_box box = rig_made(id, &heard);
    snprintf(path, sizeof(path), "%s/boxes/%s", state, id);
    bool there = access(path, F_OK) == 0;
    kill(box.pid, SIGKILL); /* a name like this cannot be asked for */
    CHECK(rig_wait(WIRE_BOX_DIED, 0, test_patience(5000), &news));
    close(box.pidfd);
    close(box.link);
    return there;
}
