/*
 * Every limit of a sandbox and every guard of the operations on its files is needed: what it stops
 * happens without it (guard_rig.h).
 */
#include <sys/resource.h>

#include "warden/guard_rig.h"

/* ---- limits ---- */

ATTACK(more_processes_than_it_may_have, "pids_max", 0)
{
    struct wire_msg spec = rig_spec("probe");

    spec.spec.pids = 16;
    return did_in(made_of(spec), "i=0; while [ $i -lt 40 ]; do sleep 0.3 & i=$((i+1)); done; wait",
                  0);
}

ATTACK(more_memory_than_it_may_have, "memory_max", 0)
{
    struct wire_msg spec = rig_spec("probe");

    spec.spec.memory = 32u << 20;
    return did_in(made_of(spec), "test $(head -c 48M /dev/zero | tail | wc -c) = 50331648", 0);
}

ATTACK(more_memory_in_pipes_than_it_may_have, "memory_max", 0)
{
    static const char script[] =
        "perl -e 'use Fcntl; my @k; my $sum = 0; my $block = q(x) x 65536;"
        " while (@k < 48) { pipe(my $r, my $w) or last; push @k, [$r, $w];"
        "  fcntl($w, 1031, 1 << 20); fcntl($w, F_SETFL, O_NONBLOCK);"
        "  while (my $n = syswrite($w, $block)) { $sum += $n } } exit($sum < 40 << 20)'";
    struct wire_msg spec = rig_spec("probe");

    spec.spec.memory = 32u << 20;
    return did_in(made_of(spec), script, 0);
}

static uint64_t cpu_us_used(const struct box_usage *usage)
{
    return usage->cpu_us;
}

static uint64_t memory_used(const struct box_usage *usage)
{
    return usage->memory;
}

/* Within the time in which it would, if nothing stood in the way. */
static bool comes_to(uint64_t (*figure)(const struct box_usage *usage), uint64_t much)
{
    int64_t until = clock_mono_ms() + test_patience(300);
    bool there = false;

    while (!there && clock_mono_ms() < until) {
        struct box_usage usage = rig_name(WIRE_BOX_STAT, "probe").msg.usage;

        there = figure(&usage) >= much;
        usleep(10000);
    }
    return there;
}

ATTACK(more_of_a_processor_than_it_may_have, "cpu_max", 0)
{
    struct wire_msg spec = rig_spec("probe");
    const char *texts[] = { "/bin/sh", "-c", "while :; do :; done", "/" };

    spec.spec.cpu_percent = 1;
    struct rig_box box = made_of(spec);
    rig_start(&box, texts, 3, 0, 0);
    bool did = comes_to(cpu_us_used, 150000); /* 10 ms of each second are its own */
    rig_destroy(&box);
    return did;
}

ATTACK(more_bytes_than_it_may_keep, "disk_bytes", 0)
{
    struct wire_msg spec = rig_spec("probe");

    spec.spec.disk = 4u << 20;
    return did_in(made_of(spec),
                  "for d in /tmp /workspace /dev/shm; do"
                  " head -c 8M /dev/zero > $d/f && full=no; rm $d/f; done; test \"$full\"",
                  0);
}

static uint64_t disks_made; /* they outlive an attempt */

ATTACK(more_bytes_than_its_disk_has, "disk_quota", 0)
{
    disk_made(++disks_made, 8 * MIB, 0);
    return did_in(box_on("probe", disks_made), "head -c 24M /dev/zero > /workspace/f && sync", 0);
}

ATTACK(more_of_a_disks_time_than_it_may_have, "io_max", 0)
{
    struct wire_msg spec = rig_spec("probe");

    if (box_host.lost & BOX_LOST_IO)
        test_skip("no limits of io here");
    disk_made(++disks_made, 50 * MIB, 0);
    CHECK(did_in(box_on("probe", disks_made), "head -c 6M /dev/urandom > /workspace/f && sync", 0));
    spec.spec.upper = disks_made;
    spec.spec.io_bytes = MIB;
    struct rig_box box = made_of(spec);
    int64_t begun = clock_mono_ms();
    CHECK(did_in(box, "dd if=/workspace/f of=/dev/null bs=256k iflag=direct", 0));
    return clock_mono_ms() - begun < 4500; /* five seconds, at the least, where it holds */
}

ATTACK(more_files_than_it_may_keep, "disk_inodes", 0)
{
    struct wire_msg spec = rig_spec("probe");

    spec.spec.inodes = 200;
    return did_in(made_of(spec), "cd /tmp; i=0; while [ $i -lt 300 ]; do : > n$i; i=$((i+1)); done",
                  0);
}

ATTACK(more_terminals_than_it_may_have, "ptys", 0)
{
    return did_in(made(),
                  "perl -e 'my @k; for (1..65) { open(my $f, q(+<), q(/dev/ptmx)) or exit 1;"
                  " push @k, $f }'",
                  0);
}

ATTACK(more_descriptors_than_it_may_have, "nofile", 0)
{
    struct wire_msg spec = rig_spec("probe");

    spec.spec.nofile = 32;
    return did_in(made_of(spec),
                  "ulimit -n $(ulimit -Hn); perl -e 'my @k; for (1..40) {"
                  " open(my $f, q(<), q(/dev/null)) or exit 1; push @k, $f }'",
                  0);
}

ATTACK(more_timers_than_it_may_have, "sigpending", 0)
{
    return probe_breaks("timers", 0);
}

ATTACK(a_memory_image_is_left, "core", 0)
{
    return probe_breaks("no_core", 0);
}

/*
 * Limits that the host's root mostly has no higher than a box may have them, and cannot raise
 * without a capability that it may lack, too: so a host that has none is played. What a child of
 * the warden does to its limits it does to these instead; the rest is as ever.
 */
static struct rlimit *played; /* shared with the children, by limit; NULL: nothing is played */

int getrlimit(__rlimit_resource_t which, struct rlimit *out)
{
    if (!played)
        return prlimit(0, which, NULL, out);
    *out = played[which];
    return 0;
}

int setrlimit(__rlimit_resource_t which, const struct rlimit *to)
{
    if (!played)
        return prlimit(0, which, to, NULL);
    played[which] = *to;
    return 0;
}

/* Does a box begin with as much of it as a host that has no limit? */
static bool unlimited(__rlimit_resource_t which)
{
    struct rlimit *limits = mmap(NULL, RLIM_NLIMITS * sizeof(*limits), PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(limits != MAP_FAILED);
    for (int i = 0; i < (int)RLIM_NLIMITS; i++)
        limits[i] = (struct rlimit){ RLIM_INFINITY, RLIM_INFINITY };
    played = limits;
    struct rig_box box = made();
    played = NULL;
    struct rlimit got = limits[which];
    munmap(limits, RLIM_NLIMITS * sizeof(*limits));
    rig_destroy(&box);
    CHECK(got.rlim_cur == got.rlim_max);
    return got.rlim_max == RLIM_INFINITY;
}

ATTACK(more_locked_memory_than_it_may_have, "memlock", 0)
{
    return unlimited(RLIMIT_MEMLOCK);
}

ATTACK(more_messages_than_it_may_have, "msgqueue", 0)
{
    return unlimited(RLIMIT_MSGQUEUE);
}

ATTACK(it_goes_before_others, "nice", 0)
{
    return unlimited(RLIMIT_NICE);
}

ATTACK(it_goes_before_all_others, "rtprio", 0)
{
    return unlimited(RLIMIT_RTPRIO);
}

/* Nobody reads what a command prints: process 1 stops reading, and would not hold it all. */
ATTACK(output_that_nobody_reads_fills_process_1, "output_pause,output_ring", 0)
{
    const char *texts[] = { "/usr/bin/yes", "/" };
    struct rig_box box = made();

    rig_start(&box, texts, 1, 0, 0);
    bool did = comes_to(memory_used, 32u << 20);
    rig_destroy(&box);
    return did;
}

/* ---- files ---- */

ATTACK(a_file_that_no_rule_names_is_read, "file_rules", 0)
{
    struct rig_box box = made();

    CHECK_INT(rig_sh(&box, "echo secret > /workspace/f", 0)->code, 0);
    bool done = rig_ruled(&box, "r/home", "exec /bin/cat /workspace/f", 0)->code == 0;
    rig_destroy(&box);
    return done;
}

/* An operation with these arguments, after `script`. */
static bool operated(const char *script, const char *const *texts, unsigned argc)
{
    struct rig_box box = made();

    CHECK_INT(rig_sh(&box, script, 0)->code, 0);
    bool done = began(&box, texts, argc, INIT_BUILTIN);
    rig_destroy(&box);
    return done;
}

ATTACK(an_operation_goes_through_a_magic_link, "file_magic", 0)
{
    return operated("true", (const char *[]){ "stat", "/proc/self/root/tmp", "1", "/" }, 3);
}

ATTACK(an_operation_reaches_the_kernels_own_files, "file_place", 0)
{
    return operated("true", (const char *[]){ "stat", "/proc/version", "1", "/" }, 3);
}

ATTACK(an_operation_opens_a_device, "file_kind", 0)
{
    return operated("true", (const char *[]){ "read", "/dev/zero", "/" }, 2);
}

ATTACK(an_operation_leaves_its_directory_by_a_link, "file_beneath", 0)
{
    return operated("mkdir /tmp/a && ln -s ../b /tmp/a/link && : > /tmp/b",
                    (const char *[]){ "beneath", "/tmp/a", "stat", "link", "1", "/" }, 5);
}

ATTACK(an_operation_leaves_its_directory_by_dots, "file_beneath", 0)
{
    return operated("mkdir /tmp/a && : > /tmp/b",
                    (const char *[]){ "beneath", "/tmp/a", "stat", "../b", "1", "/" }, 5);
}

/* There is no such file in the directory, and one behind the link that is there half of the time.
 */
ATTACK(an_operation_is_led_out_by_a_swap, "file_beneath", 0)
{
    const char *texts[] = { "beneath", "/tmp", "stat", "t/f", "1", "/" };
    struct rig_box box = made();
    unsigned count = 0;

    CHECK_INT(rig_sh(&box, ": > /workspace/f", 0)->code, 0);
    rig_swap(&box, "/workspace");
    for (int i = 0; i < 100; i++)
        count += began(&box, texts, 5, INIT_BUILTIN);
    rig_destroy(&box);
    return count;
}
