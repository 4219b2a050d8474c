/*
 * Real boxes of an ordinary user. Started by root, this program becomes one: it takes an unused
 * user id, enters a user namespace with a range of ids as `atoll serve` does, and executes itself
 * there. So what the kernel refuses to an ordinary user it refuses here.
 */
#include <dlfcn.h>
#include <grp.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "warden/box_rig.h"
#include "warden/boxes.h"
#include "warden/mount.h"

#define OUTSIDE_UID 710000001u
#define OUTSIDE_FIRST 710100000u
#define OUTSIDE_COUNT 65536u
#define INSIDE "ATOLL_TEST_INSIDE"
#define MUSTS (BOX_LOST_MEMORY | BOX_LOST_CPU | BOX_LOST_PIDS | BOX_LOST_FREEZER | BOX_LOST_USAGE)

static int put_map(pid_t pid, const char *file)
{
    char path[64], text[128];

    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
    snprintf(text, sizeof(text), "0 %u 1\n1 %u %u\n", OUTSIDE_UID, OUTSIDE_FIRST, OUTSIDE_COUNT);
    autoclose int fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd < 0 || write(fd, text, strlen(text)) < 0 ? -1 : 0;
}

/* Root's last act: the maps of its parent. */
static _Noreturn void map_parent(int go)
{
    pid_t parent = getppid();
    char byte;

    if (read(go, &byte, 1) != 1 || put_map(parent, "uid_map") < 0 || put_map(parent, "gid_map") < 0)
        _exit(1);
    _exit(0);
}

__attribute__((constructor)) static void become_ordinary(int argc, char **argv, char **envp)
{
    int go[2], status = 1;

    (void)argc, (void)envp;
    if (getenv(INSIDE) || geteuid() != 0 || pipe2(go, O_CLOEXEC) < 0)
        return;
    int probe = rig_open_probe();
    pid_t helper = fork();
    if (helper == 0)
        map_parent(go[0]);
    if (setgroups(0, NULL) < 0 || setresgid(OUTSIDE_UID, OUTSIDE_UID, OUTSIDE_UID) < 0 ||
        setresuid(OUTSIDE_UID, OUTSIDE_UID, OUTSIDE_UID) < 0 ||
        prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0 || unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0 ||
        write(go[1], "", 1) != 1 || waitpid(helper, &status, 0) != helper || status != 0 ||
        setenv(INSIDE, "1", 1) < 0 || dup2(probe, RIG_PROBE_FD) < 0) {
        fprintf(stderr, "cannot become an ordinary user: %s\n", strerror(errno));
        _exit(1);
    }
    execv("/proc/self/exe", argv);
    _exit(127);
}

static const char *open_with(uint32_t ids)
{
    if (!getenv(INSIDE))
        test_skip("becoming an ordinary user with a range of ids needs root");
    boxes_rootless(ids);
    return rig_open();
}

/* ---- the usual ---- */

TEST(a_box_has_ids_devices_and_files_of_its_own)
{
    open_with(OUTSIDE_COUNT);
    struct rig_box box = rig_create(rig_spec("usual"), "usual");
    struct rig_ran *ran = rig_sh(&box,
                                 "id -u; head -c 3 /dev/zero | tr '\\0' z; echo; echo x >/dev/null;"
                                 "cd /workspace && echo data > file && stat -c %U file; exec 2>&-;"
                                 "mknod /tmp/n c 1 3 && echo a device",
                                 0);

    CHECK_STR(ran->out, "1000\nzzz\nagent\n");
    CHECK(rig_sh(&box, "echo no > /etc/passwd", 0)->code != 0);
    CHECK(rig_sh(&box, "touch /usr/bin/x", INIT_AS_ROOT)->code != 0);
    CHECK_INT(
        rig_sh(&box, "mkdir /opt/mine && rm -rf /srv && id -u | grep -qx 0", INIT_AS_ROOT)->code,
        0);
    struct box_applied applied = rig_name(WIRE_BOX_APPLIED, "usual").msg.applied;
    CHECK_INT(applied.uid_count, 1024);
    CHECK(applied.uid_first >= 1 && applied.uid_first + 1024 <= 1 + OUTSIDE_COUNT);
    CHECK_INT(applied.own_ns, (1 << BOX_NS_COUNT) - 1);
    CHECK_INT(applied.seccomp_mode, 2);
    CHECK_INT(applied.no_new_privs, 1);
    CHECK_INT(applied.lost & (BOX_LOST_DISKS | BOX_LOST_IMAGE | BOX_LOST_IDS | BOX_LOST_FILTER),
              BOX_LOST_DISKS | BOX_LOST_IMAGE | BOX_LOST_IDS | BOX_LOST_FILTER);
    CHECK_INT(applied.lost & BOX_LOST_OWN_ID, 0);
    rig_destroy(&box);
    rig_close();
}

TEST(nothing_escapes_from_an_ordinary_users_box)
{
    open_with(OUTSIDE_COUNT);
    static const char *const fewer_ids[] = { "own_ids", NULL };
    struct rig_box box = rig_create(rig_spec("probe"), "probe");

    rig_bring_probe(&box);
    rig_check_probe(&box, 0, fewer_ids);
    rig_check_probe(&box, INIT_AS_ROOT, fewer_ids);
    rig_destroy(&box);
    rig_close();
}

TEST(two_boxes_have_different_ids)
{
    open_with(OUTSIDE_COUNT);
    struct rig_box one = rig_create(rig_spec("one"), "one"),
                   two = rig_create(rig_spec("two"), "two");
    uint32_t a = rig_name(WIRE_BOX_APPLIED, "one").msg.applied.uid_first;
    uint32_t b = rig_name(WIRE_BOX_APPLIED, "two").msg.applied.uid_first;

    CHECK(a + 1024 <= b || b + 1024 <= a);
    rig_destroy(&one);
    rig_destroy(&two);
    rig_close();
}

TEST(there_are_as_many_boxes_as_ids_are_enough_for)
{
    open_with(2 * 1024);
    struct rig_box one = rig_create(rig_spec("one"), "one"),
                   two = rig_create(rig_spec("two"), "two");
    struct wire_msg spec = rig_spec("three");

    CHECK_INT(rig_ask(&spec).msg.status, ENOSPC);
    rig_destroy(&one);
    one = rig_create(rig_spec("three"), "three");
    rig_destroy(&one);
    rig_destroy(&two);
    rig_close();
}

/* ---- limits ---- */

TEST(what_must_not_be_lost_is_refused)
{
    const char *state = open_with(OUTSIDE_COUNT);
    struct rig_left before = rig_before(state);

    if ((box_host.lost & MUSTS) != MUSTS)
        test_skip("this user has cgroups of its own");
    for (uint32_t bit = 1; bit < 1u << BOX_LOSSES; bit <<= 1) {
        struct wire_msg spec = rig_spec("must");

        spec.spec.must = bit;
        struct rig_heard heard = rig_ask(&spec);
        CHECK_INT(heard.msg.status, bit == BOX_LOST_OWN_ID ? 0 : ENOTSUP);
        if (heard.msg.status) {
            CHECK_INT(heard.msg.created.lost, bit);
            continue;
        }
        struct rig_box box = rig_made("must", &heard);
        rig_destroy(&box);
    }
    CHECK_INT(rig_name(WIRE_BOX_FREEZE, "none").msg.status, ENOENT);
    rig_settle();
    rig_check_left(state, before);
    rig_close();
}

TEST(without_cgroups_each_process_and_user_has_a_limit)
{
    open_with(OUTSIDE_COUNT);
    struct wire_msg spec = rig_spec("limits");

    if ((box_host.lost & MUSTS) != MUSTS)
        test_skip("this user has cgroups of its own");
    spec.spec.memory = 64u << 20;
    spec.spec.disk = 4u << 20;
    spec.spec.pids = 20;
    struct rig_box box = rig_create(spec, "limits");
    struct box_applied applied = rig_name(WIRE_BOX_APPLIED, "limits").msg.applied;
    CHECK_INT(applied.data, 64u << 20);
    CHECK_INT(applied.nproc, 20);
    CHECK(applied.memory == UINT64_MAX && applied.pids == UINT64_MAX);
    CHECK_STR(applied.cgroup_mode, "none");
    CHECK(rig_sh(&box, "head -c 100M /dev/zero | tail -c 90M > /dev/null", 0)->code != 0 ||
          strstr(rig_sh(&box, "head -c 100M /dev/zero | tail -c 90M | wc -c", 0)->out,
                 "94371840") == NULL);
    CHECK(strstr(rig_sh(&box, "dd if=/dev/zero of=/tmp/f bs=64k count=128 2>&1", 0)->out,
                 "No space left"));
    struct rig_ran *ran =
        rig_sh(&box, "i=0; while [ $i -lt 50 ]; do sleep 1 & i=$((i+1)); done; wait; echo all", 0);
    CHECK(!strstr(ran->out, "all") && strstr(ran->out, "fork"));
    rig_destroy(&box);
    /* It is by these that they hold. */
    rig_without("data_max,nproc_max");
    box = rig_create(spec, "limits");
    rig_without("");
    CHECK_STR(rig_sh(&box, "head -c 100M /dev/zero | tail -c 90M | wc -c", 0)->out, "94371840\n");
    ran =
        rig_sh(&box, "i=0; while [ $i -lt 50 ]; do sleep 1 & i=$((i+1)); done; wait; echo all", 0);
    CHECK_STR(ran->out, "all\n");
    rig_destroy(&box);
    rig_close();
}

TEST(what_cgroups_would_do_is_said_to_be_missing)
{
    open_with(OUTSIDE_COUNT);
    struct rig_box box = rig_create(rig_spec("box"), "box");
    struct wire_msg limits = { .verb = WIRE_BOX_LIMITS, .limits = { .memory = 64u << 20 } };

    if ((box_host.lost & MUSTS) != MUSTS)
        test_skip("this user has cgroups of its own");
    snprintf(limits.limits.name.id, BOX_ID_SIZE, "box");
    CHECK_INT(rig_name(WIRE_BOX_FREEZE, "box").msg.status, ENOTSUP);
    CHECK_INT(rig_name(WIRE_BOX_STAT, "box").msg.status, ENOTSUP);
    CHECK_INT(rig_ask(&limits).msg.status, ENOTSUP);
    rig_destroy(&box);
    rig_close();
}

/* ---- one id ---- */

TEST(with_one_id_there_is_an_agent_and_no_root)
{
    open_with(0);
    static const char *const one_id[] = { "own_ids", NULL };
    struct rig_box box = rig_create(rig_spec("probe"), "probe");

    CHECK_STR(rig_sh(&box,
                     "id -u; cd /workspace && echo x > f && stat -c %U f; kill -9 1; echo $?;"
                     "cat /proc/1/environ 2>/dev/null || echo closed",
                     0)
                  ->out,
              "1000\nagent\n0\nclosed\n");
    struct rig_ran *ran = rig_sh(&box, "id", INIT_AS_ROOT);
    CHECK_INT(ran->error, EPERM);
    CHECK_INT(ran->step, INIT_STEP_USER);
    struct box_applied applied = rig_name(WIRE_BOX_APPLIED, "probe").msg.applied;
    CHECK_INT(applied.uid_count, 1);
    CHECK_INT(applied.lost & BOX_LOST_OWN_ID, BOX_LOST_OWN_ID);
    CHECK_INT(applied.caps[BOX_CAPS_PERMITTED] | applied.caps[BOX_CAPS_EFFECTIVE], 0);
    rig_bring_probe(&box);
    rig_check_probe(&box, 0, one_id);
    rig_destroy(&box);
    rig_close();
}

/* Process 1 has the agent's own id here: that it is not to be looked into is all that keeps it. */
TEST(the_agent_looks_into_process_1_only_without_its_guard)
{
    static const char *const without[] = { "", "dumpable" };

    for (int i = 0; i < 2; i++) {
        rig_without(without[i]);
        open_with(0);
        struct rig_box box = rig_create(rig_spec("probe"), "probe");
        CHECK_INT(rig_sh(&box, "head -c 1 /proc/1/maps", 0)->code == 0, i);
        rig_destroy(&box);
        rig_close();
    }
    rig_without("");
}

/* ---- what overlay does in the name of who made it ---- */

static uint32_t *maker_caps; /* shared with the children: what the last maker of one could do */

/* Stands in the way of the call that makes it; all others go on as they are. */
long syscall(long number, ...)
{
    static long (*next)(long, ...);
    static long overlay = -1;
    long args[5]; /* none of ours has more */
    va_list list;

    va_start(list, number);
    for (size_t i = 0; i < ARRAY_LEN(args); i++)
        args[i] = va_arg(list, long);
    va_end(list);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "syscall");
    if (number == SYS_fsconfig && args[0] == overlay && args[1] == FSCONFIG_CMD_CREATE &&
        maker_caps) {
        struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
        struct __user_cap_data_struct data[2];

        *maker_caps = next(SYS_capget, &head, data) == 0 ? data[0].effective : 0;
    }
    long rc = next(number, args[0], args[1], args[2], args[3], args[4]);
    if (number == SYS_fsopen && strcmp((const char *)args[0], "overlay") == 0)
        overlay = rc;
    return rc;
}

/*
 * It writes with the capabilities that its maker had: with this one, above all quotas. The root of
 * a machine may lack it, and then there is nothing to see; here it is ours, if only over ourselves.
 */
TEST(the_maker_of_an_overlay_is_above_quotas_only_without_its_guard)
{
    static const char *const without[] = { "", "resource" };

    maker_caps = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(maker_caps != MAP_FAILED);
    for (int i = 0; i < 2; i++) {
        *maker_caps = 0;
        rig_without(without[i]);
        open_with(OUTSIDE_COUNT);
        struct rig_box box = rig_create(rig_spec("quota"), "quota");
        CHECK_INT(*maker_caps >> CAP_SYS_ADMIN & 1, 1); /* it was seen */
        CHECK_INT(*maker_caps >> CAP_SYS_RESOURCE & 1, i);
        rig_destroy(&box);
        rig_close();
    }
    rig_without("");
    munmap(maker_caps, 4096);
    maker_caps = NULL;
}

/* ---- what is counted for the owner of a user namespace ---- */

static void set_instances(const char *most)
{
    autoclose int fd = open("/proc/sys/user/max_inotify_instances", O_WRONLY | O_CLOEXEC);

    CHECK(write(fd, most, strlen(most)) == (ssize_t)strlen(most));
}

/* Takes all instances of inotify that it can have, and keeps them. */
static void take_all(struct rig_box *box)
{
    const char *texts[] = { "/usr/bin/perl", "-e",
                            "$| = 1; while (syscall(294, 0) >= 0) { $n++ } print $n; sleep 600",
                            "/" };
    uint32_t exec = rig_start(box, texts, 3, 0, 0);
    static struct rig_ran ran;

    ran = (struct rig_ran){ 0 };
    while (ran.len == 0 && !rig_frame(box, exec, &ran))
        ;
    CHECK_STR(ran.out, "20");
}

/* With few of them for each user of our namespace: those of the host are for other tests, too. */
TEST(a_box_takes_what_others_need_only_without_its_guard)
{
    static const char *const without[] = { "", "own_counts" };

    for (int i = 0; i < 2; i++) {
        rig_without(without[i]);
        open_with(OUTSIDE_COUNT);
        struct rig_box box = rig_create(rig_spec("taker"), "taker");
        set_instances("20");
        take_all(&box);
        autoclose int ours = inotify_init1(IN_CLOEXEC);
        int error = errno;
        set_instances("2147483647");
        CHECK_INT(ours < 0 && error == EMFILE, i);
        rig_destroy(&box);
        rig_close();
    }
    rig_without("");
}

/* ---- faults and ends ---- */

TEST(every_step_that_fails_is_undone_for_an_ordinary_user)
{
    const char *state = open_with(OUTSIDE_COUNT);
    struct rig_left before = rig_before(state);
    int n = 0;

    for (;;) {
        struct wire_msg spec = rig_spec("fault");

        rig_settle();
        box_fault_in = ++n;
        struct rig_heard heard = rig_ask(&spec);
        box_fault_in = 0;
        if (heard.msg.status == 0) {
            struct rig_box box = rig_made("fault", &heard);

            rig_destroy(&box);
            break;
        }
        CHECK_INT(heard.msg.status, EIO);
        CHECK_INT(heard.count, 0);
        rig_settle();
        rig_check_left(state, before);
    }
    CHECK(n > 30);
    rig_close();
}

TEST(a_box_that_was_never_recorded_is_ended)
{
    const char *state = open_with(OUTSIDE_COUNT);
    struct rig_box box = rig_create(rig_spec("stray"), "stray"),
                   kept = rig_create(rig_spec("kept"), "kept");
    struct pollfd end = { .fd = box.pidfd, .events = POLLIN },
                  other = { .fd = kept.pidfd, .events = POLLIN };

    record_remove(&box_host, table_slot(table_find((char[BOX_ID_SIZE]){ "stray" })));
    rig_close(); /* boxes go on */
    CHECK_INT(poll(&end, 1, 0), 0);
    boxes_rootless(OUTSIDE_COUNT);
    rig_open_at(state);
    CHECK_INT(poll(&end, 1, 5000), 1);
    CHECK_INT(poll(&other, 1, 0), 0);
    CHECK_INT(rig_left(state).dirs, 1);
    CHECK(!box_known((char[BOX_ID_SIZE]){ "stray" }) && box_known((char[BOX_ID_SIZE]){ "kept" }));
    CHECK_INT(rig_name(WIRE_BOX_DESTROY, "kept").msg.status, 0);
    close(box.pidfd), close(box.link), close(kept.pidfd), close(kept.link);
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
    rig_close();
}
