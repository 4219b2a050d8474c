/*
 * The process that process 1 makes ahead (init/spawn.c) in a real box: what becomes of it is what
 * any command is; until then it is nobody's, and whatever is done to it, commands run.
 */
#include "warden/box_rig.h"

/* The first child of process 1, as the host sees it, and whether it sleeps; 0: none. */
static int first_child(const struct rig_box *box, bool *sleeps)
{
    char path[64], text[512] = "", state = 0;
    int pid = 0;

    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)box->pid, (int)box->pid);
    autoclose int list = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(list >= 0 && read(list, text, sizeof(text) - 1) >= 0);
    if (sscanf(text, "%d", &pid) != 1)
        return 0;
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    autoclose int stat = open(path, O_RDONLY | O_CLOEXEC);
    memset(text, 0, sizeof(text));
    *sleeps = stat >= 0 && read(stat, text, sizeof(text) - 1) > 0 &&
              sscanf(text, "%*d (memfd:atoll-ini) %c", &state) == 1 && state == 'S';
    return pid;
}

/* Two commands have run, and now one waits: it sleeps for the first time there. */
static void make_one_wait(struct rig_box *box)
{
    int64_t until = clock_mono_ms() + test_patience(10000);
    bool sleeps = false;

    for (int i = 0; i < 2; i++)
        CHECK_INT(rig_sh(box, "exit 0", 0)->code, 0);
    while (!(first_child(box, &sleeps) && sleeps) && clock_mono_ms() < until)
        poll(NULL, 0, 2);
    CHECK(sleeps);
}

static int spare_of(struct rig_box *box)
{
    /* With input it is another process. As root, who alone sees whose it is. */
    struct rig_ran *ran = rig_finish(
        box, rig_start(box,
                       (const char *[]){ "/bin/sh", "-c",
                                         "for p in /proc/[0-9]*; do p=${p#/proc/}; [ $p != 1 ] && "
                                         "[ $p != $$ ] && echo $p; done; :",
                                         "/" },
                       3, 0, INIT_STDIN_OPEN | INIT_AS_ROOT));

    CHECK_INT(ran->code, 0);
    return (int)strtol(ran->out, NULL, 10);
}

/* Everything that could be different but the numbers of processes and of memory. */
static const char about[] =
    "echo $$; grep -v 'Pid\\|Tgid\\|^NS\\|^Vm\\|^Rss\\|ctxt' /proc/self/status;"
    "cat /proc/self/limits; ls /proc/$$/fd; pwd; env | grep -v ^ATOLL; set -- $(cat /proc/$$/stat);"
    "[ $5 = $$ ] && [ $6 = $$ ] && echo leads a group and a session, terminal $7";

static const char *without_number(char *text, int *number)
{
    char *after;

    *number = (int)strtol(text, &after, 10);
    return after;
}

TEST(whoever_was_made_ahead_is_what_any_command_is)
{
    static char usual[8192];
    int first, second;

    rig_open();
    struct rig_box box = rig_create(rig_spec("like"), "like");
    struct rig_ran *ran = rig_sh(&box, about, 0);
    CHECK_INT(ran->code, 0);
    CHECK(ran->len < sizeof(usual));
    memcpy(usual, ran->out, ran->len + 1);
    make_one_wait(&box);
    int spare = spare_of(&box);
    CHECK(spare > 1);
    ran = rig_sh(&box, about, 0);
    const char *then = without_number(usual, &first), *now = without_number(ran->out, &second);
    CHECK_INT(second, spare); /* it is the one that waited */
    CHECK_STR(now, then);
    CHECK(strstr(now, "leads a group and a session, terminal 0"));
    CHECK(strstr(now, "CapBnd:\t0000000000000000") && strstr(now, "Uid:\t1000\t1000\t1000\t1000"));
    /* And what goes wrong in it is told as ever. */
    make_one_wait(&box);
    ran = rig_finish(&box, rig_start(&box, (const char *[]){ "/bin/missing", "/" }, 1, 0, 0));
    CHECK(ran->error == ENOENT && ran->step == INIT_STEP_FIND);
    make_one_wait(&box);
    ran = rig_finish(&box, rig_start(&box, (const char *[]){ "/bin/true", "/proc/1" }, 1, 0, 0));
    CHECK(ran->error && ran->step == INIT_STEP_CWD);
    CHECK_INT(rig_sh(&box, "exit 5", 0)->code, 5);
    rig_destroy(&box);
    rig_close();
}

TEST(it_may_be_killed_or_stopped_while_it_waits)
{
    char script[64];

    rig_open();
    struct rig_box box = rig_create(rig_spec("hurt"), "hurt");
    for (int round = 0; round < 4; round++) {
        make_one_wait(&box);
        snprintf(script, sizeof(script), "kill -%s %d", round % 2 ? "STOP" : "KILL",
                 spare_of(&box));
        CHECK_INT(rig_sh(&box, script, INIT_AS_ROOT)->code, 0);
        struct rig_ran *ran = rig_sh(&box, "echo out; echo err >&2; exit 6", 0);
        CHECK_INT(ran->code, 6);
        CHECK_STR(ran->out, "out\nerr\n");
    }
    rig_destroy(&box);
    rig_close();
}

/* Nobody asked for it, so nobody sees it in a list of processes. */
TEST(it_is_not_listed)
{
    rig_open();
    struct rig_box box = rig_create(rig_spec("list"), "list");
    make_one_wait(&box);
    struct rig_ran *ran =
        rig_finish(&box, rig_start(&box, (const char *[]){ "ps", "/" }, 1, 0, INIT_BUILTIN));
    struct init_process one;
    CHECK_INT(ran->code, 0);
    memcpy(&one, ran->out, sizeof(one));
    CHECK_INT(one.pid, 1);
    CHECK_INT(ran->len, sizeof(one) + one.text_len);
    rig_destroy(&box);
    rig_close();
}

/* Process 1 is born with a copy of the warden's descriptors, of which there are thousands. */
TEST(a_table_of_descriptors_is_as_large_as_it_needs_to_be)
{
    int64_t until = clock_mono_ms() + test_patience(10000);
    char path[64], text[2048];
    int many[300], size = 0;

    rig_open();
    for (size_t i = 0; i < ARRAY_LEN(many); i++)
        CHECK((many[i] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0);
    struct rig_box box = rig_create(rig_spec("table"), "table");
    snprintf(path, sizeof(path), "/proc/%d/status", (int)box.pid);
    do {
        const char *at;

        poll(NULL, 0, 5);
        memset(text, 0, sizeof(text));
        autoclose int fd = open(path, O_RDONLY | O_CLOEXEC);
        CHECK(fd >= 0 && read(fd, text, sizeof(text) - 1) > 0 && (at = strstr(text, "FDSize:")));
        size = (int)strtol(at + 7, NULL, 10);
    } while (size > 64 && clock_mono_ms() < until);
    CHECK_INT(size, 64);
    CHECK_INT(rig_sh(&box, "exit 4", 0)->code, 4); /* with all that it needs */
    CHECK_INT(
        rig_finish(&box, rig_start(&box, (const char *[]){ "/bin/true", "/" }, 1, 0, INIT_TTY))
            ->code,
        0);
    rig_destroy(&box);
    for (size_t i = 0; i < ARRAY_LEN(many); i++)
        close(many[i]);
    rig_close();
}
