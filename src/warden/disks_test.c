/* Disks by their verbs, and boxes on them: real ones, as root. */
#include "base/mem.h"
#include "warden/cgroup.h"
#include "warden/disk_rig.h"

/* ---- the verbs ---- */

TEST(disks_are_made_listed_and_dropped)
{
    const char *state = rig_open();
    struct wire_msg list = { .verb = WIRE_DISK_LIST };
    int mounts = rig_lines("/proc/self/mountinfo");

    CHECK_INT(rig_ask(&list).msg.disk_rows.count, 0);
    CHECK_INT(disk_ask(WIRE_DISK_STAT, 1, 0, 0).msg.status, ENOENT);
    CHECK_INT(disk_ask(WIRE_DISK_DROP, 1, 0, 0).msg.status, ENOENT);
    CHECK_INT(rig_left(state).dirs, 0);
    disk_made(7, 10 * MIB, 0);
    disk_made(UINT64_MAX, 0, 0);
    disk_made(9, 20 * MIB, 7);
    CHECK_INT(rig_loops(state), 1);
    CHECK_INT(rig_lines("/proc/self/mountinfo"), mounts); /* nobody sees it */
    CHECK_INT(disk_ask(WIRE_DISK_MAKE, 7, 0, 0).msg.status, EEXIST);
    CHECK_INT(disk_ask(WIRE_DISK_MAKE, 8, 0, 99).msg.status, ENOENT);
    CHECK_INT(disk_ask(WIRE_DISK_MAKE, 0, 0, 0).msg.status, EINVAL);
    CHECK_INT(disk_ask(WIRE_DISK_MAKE, 8, 1, 0).msg.status, EINVAL);
    CHECK_INT(disk_ask(WIRE_DISK_MAKE, 8, 0, 8).msg.status, EINVAL);
    CHECK_INT(disk_ask(WIRE_DISK_DROP, 9, 0, 7).msg.status, EINVAL);
    CHECK_INT(disk_ask(WIRE_DISK_LIMIT, 8, MIB, 0).msg.status, ENOENT);
    struct rig_heard heard = rig_ask(&list);
    CHECK_INT(heard.msg.disk_rows.count, 3);
    CHECK(heard.msg.disk_rows.ids[0] == 7 && heard.msg.disk_rows.ids[1] == 9 &&
          heard.msg.disk_rows.ids[2] == UINT64_MAX);
    heard = disk_ask(WIRE_DISK_STAT, 7, 0, 0);
    CHECK_INT(heard.msg.status, 0);
    CHECK_INT(heard.msg.disk_usage.bytes, 10 * MIB);
    CHECK_INT(disk_ask(WIRE_DISK_LIMIT, 7, 30 * MIB, 0).msg.status, 0);
    CHECK_INT(disk_ask(WIRE_DISK_STAT, 7, 0, 0).msg.disk_usage.bytes, 30 * MIB);
    CHECK_INT(disk_ask(WIRE_DISK_LIMIT, 7, 0, 0).msg.status, 0);
    CHECK_INT(disk_ask(WIRE_DISK_STAT, 7, 0, 0).msg.disk_usage.bytes, 0);
    CHECK_INT(disk_ask(WIRE_DISK_DROP, 7, 0, 0).msg.status, 0);
    CHECK_INT(disk_ask(WIRE_DISK_STAT, 7, 0, 0).msg.status, ENOENT);
    CHECK_INT(disk_ask(WIRE_DISK_STAT, 9, 0, 0).msg.status, 0);
    rig_close();
    rig_check_no_loops(state);
    rig_open_at(state); /* and all is there again */
    heard = rig_ask(&list);
    CHECK_INT(heard.msg.disk_rows.count, 2);
    CHECK_INT(disk_ask(WIRE_DISK_STAT, 9, 0, 0).msg.disk_usage.bytes, 20 * MIB);
    rig_close();
    rig_check_no_loops(state);
}

TEST(a_box_on_a_disk_keeps_its_files)
{
    const char *state = rig_open();

    disk_made(1, 100 * MIB, 0);
    struct rig_box box = box_on("keep", 1);
    check_sh(&box,
             "echo hello > /tmp/a && echo you > ~/b 2>/dev/null || cd; id -u;"
             "echo deep > /workspace/c && mkdir -p /workspace/d && df /tmp /dev/shm",
             0);
    check_sh(&box, "echo root > /etc/new && rm /etc/hostname && chown 1000 /etc/new", INIT_AS_ROOT);
    struct wire_msg again = rig_spec("second");
    again.spec.upper = 1;
    CHECK_INT(rig_ask(&again).msg.status, EBUSY);
    CHECK_INT(disk_ask(WIRE_DISK_DROP, 1, 0, 0).msg.status, EBUSY);
    rig_destroy(&box);
    box = box_on("keep", 1);
    check_sh(&box,
             "grep hello /tmp/a && grep deep /workspace/c && grep root /etc/new &&"
             "[ ! -e /etc/hostname ] && [ -O /etc/new ] && [ -d /workspace/d ]",
             0);
    rig_destroy(&box);
    CHECK_INT(disk_ask(WIRE_DISK_DROP, 1, 0, 0).msg.status, 0);
    rig_close();
    rig_check_no_loops(state);
}

TEST(wishes_that_make_no_sense_are_refused)
{
    static const struct disk_wish wishes[] = {
        { .id = 0 },
        { .id = 8, .bytes = BOX_DISK_MIN - 1 },
        { .id = 8, .bytes = BOX_MEMORY_MAX + 1 },
        { .id = 8, .from = 8 },
        { .id = 8, .flags = DISK_FOR_AGENT << 1 },
        { .id = 8, .from = 7, .flags = DISK_FOR_AGENT }, /* a copy is what it is a copy of */
        { .id = 8, .zero = 1 },
    };

    rig_open();
    for (size_t i = 0; i < ARRAY_LEN(wishes); i++) {
        struct wire_msg msg = { .verb = WIRE_DISK_MAKE, .disk = wishes[i] };

        CHECK_INT(rig_ask(&msg).msg.status, EINVAL);
    }
    rig_close();
}

/* ---- sizes ---- */

static void fill_and_empty(uint64_t id)
{
    disk_made(id, 8 * MIB, 0);
    disk_made(id + 1, 24 * MIB, 0);
    struct rig_box box = box_on("full", id), other = box_on("other", id + 1);
    struct rig_ran *ran = rig_sh(&box, "head -c 64M /dev/zero > /workspace/f", 0);

    CHECK(ran->code != 0);
    CHECK(strstr(ran->out, "quota exceeded") || strstr(ran->out, "No space left"));
    /* What is small counts too, and the box itself goes on. */
    ran = rig_sh(&box,
                 "rm /workspace/f; python3 -c '\n"
                 "for i in range(200000): open(\"/tmp/%0100d\" % i, \"w\").close()'",
                 0);
    CHECK(ran->code != 0);
    CHECK(strstr(ran->out, "quota exceeded") || strstr(ran->out, "No space left"));
    check_sh(&other, "head -c 10M /dev/zero > /workspace/f && sync", 0);
    check_sh(&box, "rm -rf /tmp/0* && sync && head -c 2M /dev/urandom > /workspace/g && sync", 0);
    CHECK_INT(disk_ask(WIRE_DISK_LIMIT, id, 64 * MIB, 0).msg.status, 0);
    check_sh(&box, "head -c 40M /dev/zero > /workspace/h && sync", 0);
    struct rig_heard heard = disk_ask(WIRE_DISK_STAT, id, 0, 0);
    CHECK_INT(heard.msg.disk_usage.bytes, 64 * MIB);
    CHECK(heard.msg.disk_usage.used >= 40 * MIB && heard.msg.disk_usage.used <= 65 * MIB);
    CHECK_INT(disk_ask(WIRE_DISK_LIMIT, id, MIB, 0).msg.status, 0);
    check_sh(&box, "! head -c 4M /dev/zero > /workspace/i", 0);
    check_sh(&box, "rm /workspace/h", 0);
    rig_destroy(&box);
    rig_destroy(&other);
}

TEST(a_full_disk_is_full_inside_and_nothing_outside)
{
    rig_open();
    fill_and_empty(1);
    rig_close();
}

TEST(a_kernel_without_simple_quotas_has_limits_too)
{
    disk_full_quotas = true;
    rig_open();
    fill_and_empty(1);
    rig_close();
    disk_full_quotas = false;
}

/* ---- copies ---- */

static const char make_things[] =
    "cd /workspace && mkdir dir && echo one > dir/file && chmod 4751 dir/file && ln dir/file link "
    "&&"
    "ln -s dir/file sym && mkfifo fifo && chmod 1733 dir &&"
    "python3 -c 'import os; os.setxattr(\"dir/file\", \"user.colour\", b\"red\")' &&"
    "echo gone > gone && rm -r /etc/ssl && mkdir /etc/ssl && echo own > /etc/ssl/own &&"
    "rm /etc/hosts && chown 1000:5 dir && chmod 600 /etc/passwd";
static const char check_things[] =
    "cd /workspace && [ \"$(stat -c %a:%h:%u dir/file)\" = 4751:2:0 ] &&"
    "[ \"$(stat -c %i link)\" = \"$(stat -c %i dir/file)\" ] && [ \"$(readlink sym)\" = dir/file ] "
    "&&"
    "[ -p fifo ] && [ \"$(stat -c %a:%u:%g dir)\" = 1733:1000:5 ] &&"
    "python3 -c 'import os; assert os.getxattr(\"dir/file\", \"user.colour\") == b\"red\"' &&"
    "[ \"$(ls /etc/ssl)\" = own ] && [ ! -e /etc/hosts ] && [ \"$(stat -c %a /etc/passwd)\" = 600 "
    "]";

TEST(a_copy_has_everything_and_goes_its_own_way)
{
    rig_open();
    disk_made(1, 100 * MIB, 0);
    struct rig_box box = box_on("first", 1);

    check_sh(&box, make_things, INIT_AS_ROOT);
    check_sh(&box, check_things, INIT_AS_ROOT);
    CHECK_INT(rig_name(WIRE_BOX_FREEZE, "first").msg.status, 0);
    disk_made(2, 100 * MIB, 1); /* while it is in use */
    disk_made(3, 100 * MIB, 2);
    CHECK_INT(rig_name(WIRE_BOX_THAW, "first").msg.status, 0);
    struct rig_box copy = box_on("second", 2);
    check_sh(&copy, check_things, INIT_AS_ROOT);
    check_sh(&box,
             "cd /workspace && echo first >> dir/file && rm gone && mkdir only-first &&"
             "echo back > /etc/hosts",
             INIT_AS_ROOT);
    check_sh(&copy,
             "cd /workspace && ! grep first dir/file && grep gone gone && [ ! -e only-first ]"
             "&& [ ! -e /etc/hosts ] && rm sym && echo second > second && rm -r /etc/ssl",
             INIT_AS_ROOT);
    check_sh(&box, "cd /workspace && [ -L sym ] && [ ! -e second ] && grep own /etc/ssl/own",
             INIT_AS_ROOT);
    CHECK(disk_ask(WIRE_DISK_STAT, 2, 0, 0).msg.disk_usage.used < MIB);
    rig_destroy(&box);
    CHECK_INT(disk_ask(WIRE_DISK_DROP, 1, 0, 0).msg.status, 0); /* the copies do not need it */
    check_sh(&copy, "cat /workspace/second", 0);
    rig_destroy(&copy);
    copy = box_on("third", 3);
    check_sh(&copy, check_things, INIT_AS_ROOT);
    rig_destroy(&copy);
    rig_close();
}

#define COPIES 50

TEST(copies_of_a_frozen_writer_are_of_one_instant)
{
    rig_open();
    disk_made(1, 400 * MIB, 0);
    struct rig_box box = box_on("writer", 1);
    const char *texts[] = { "/usr/bin/python3", "-c",
                            "import os\nfor n in range(10**9):\n"
                            " for f in 'ab':\n"
                            "  with open('/workspace/' + f, 'a') as out: out.write('%d\\n' % n)",
                            "A=b", "/" };
    uint32_t exec = rig_start(&box, texts, 3, 1, 0);

    (void)exec;
    for (uint64_t i = 0; i < COPIES; i++) {
        CHECK_INT(rig_name(WIRE_BOX_FREEZE, "writer").msg.status, 0);
        disk_made(100 + i, 0, 1);
        CHECK_INT(rig_name(WIRE_BOX_THAW, "writer").msg.status, 0);
        poll(NULL, 0, 2);
    }
    struct rig_box check = rig_create(rig_spec("check"), "check");
    for (uint64_t i = 0; i < COPIES; i++) {
        char target[32];

        snprintf(target, sizeof(target), "/copies/%llu", (unsigned long long)i);
        CHECK_INT(mount_disk("check", 100 + i, target, BOX_MOUNT_READ_ONLY), 0);
    }
    check_sh(&check,
             "python3 -c '\n"
             "import os\n"
             "last = -1\n"
             "def lines(i, f):\n"
             "    path = \"/copies/%d/workspace/%s\" % (i, f)\n"
             "    if not os.path.exists(path): return []\n"
             "    text = open(path).read()\n"
             "    assert text == \"\" or text[-1] == \"\\n\"\n"
             "    rows = [int(x) for x in text.split()]\n"
             "    assert rows == list(range(len(rows)))\n"
             "    return rows\n"
             "for i in range(50):\n"
             "    a, b = lines(i, \"a\"), lines(i, \"b\")\n"
             "    assert len(a) - len(b) in (0, 1), (i, len(a), len(b))\n"
             "    assert len(a) >= last\n"
             "    last = len(a)\n"
             "assert last > 0\n"
             "'",
             0);
    rig_destroy(&check);
    rig_destroy(&box);
    for (uint64_t i = 0; i < COPIES; i++)
        CHECK_INT(disk_ask(WIRE_DISK_DROP, 100 + i, 0, 0).msg.status, 0);
    rig_close();
}

TEST(the_list_comes_in_pages)
{
    rig_open();
    struct wire_msg list = { .verb = WIRE_DISK_LIST };

    for (uint64_t i = DISK_ROWS + 5; i > 0; i--)
        disk_made(i * 1000, 0, 0);
    struct rig_heard heard = rig_ask(&list);
    CHECK_INT(heard.msg.disk_rows.count, DISK_ROWS);
    CHECK_INT(heard.msg.disk_rows.more, 1);
    for (uint64_t i = 0; i < DISK_ROWS; i++)
        CHECK_INT(heard.msg.disk_rows.ids[i], (i + 1) * 1000);
    list.disk_page.after = DISK_ROWS * 1000;
    heard = rig_ask(&list);
    CHECK_INT(heard.msg.disk_rows.count, 5);
    CHECK_INT(heard.msg.disk_rows.more, 0);
    list.disk_page.after = UINT64_MAX;
    CHECK_INT(rig_ask(&list).msg.disk_rows.count, 0);
    rig_close();
}

/* ---- faults ---- */

TEST(a_disk_whose_making_fails_is_not_there)
{
    const char *state = rig_open();
    struct wire_msg list = { .verb = WIRE_DISK_LIST };
    /* The image and mkfs; then, with an image: loop device, mount, quotas. */
    static const int store_faults[] = { 1, 2, 3, 2, 3 };
    int status, n;

    for (size_t i = 0; i < ARRAY_LEN(store_faults); i++) {
        box_fault_in = store_faults[i];
        status = disk_ask(WIRE_DISK_MAKE, 1, MIB, 0).msg.status;
        box_fault_in = 0;
        CHECK_INT(status, EIO);
        rig_check_no_loops(state);
    }
    CHECK_INT(rig_ask(&list).msg.disk_rows.count, 0);
    disk_made(1, MIB, 0);
    for (uint64_t from = 0; from < 2; from++) {
        n = 0;
        do {
            box_fault_in = ++n;
            status = disk_ask(WIRE_DISK_MAKE, 2 + from, MIB, from).msg.status;
            box_fault_in = 0;
            CHECK(status == EIO || status == 0);
            CHECK_INT(rig_ask(&list).msg.disk_rows.count, 1 + from + (status == 0));
        } while (status);
        CHECK(n > 3);
    }
    CHECK_INT(disk_ask(WIRE_DISK_DROP, 1, 0, 0).msg.status, 0);
    rig_close();
    rig_check_no_loops(state);
}

TEST(every_step_of_a_box_on_disks_is_named_and_undone)
{
    const char *state = rig_open();
    disk_made(1, 50 * MIB, 0);
    struct rig_left before = rig_before(state);
    uint64_t steps = 0;
    int n = 0;

    boxes_tool(open("/usr/bin/true", O_PATH | O_CLOEXEC));
    before.fds++;
    for (;;) {
        struct wire_msg spec = rig_spec("fault");

        spec.spec.upper = 1;
        spec.spec.flags = BOX_WITH_SYS | BOX_WITH_TOOL;
        rig_settle();
        box_fault_in = ++n;
        struct rig_heard heard = rig_ask(&spec);
        box_fault_in = 0;
        if (heard.msg.status == 0) {
            struct rig_box box = rig_made("fault", &heard);

            check_sh(&box, "true", 0);
            rig_destroy(&box);
            break;
        }
        CHECK_INT(heard.msg.status, EIO);
        steps |= 1ull << heard.msg.created.step;
        rig_settle();
        rig_check_left(state, before);
    }
    CHECK_INT(steps >> BOX_STEP_UPPER & 1, 1);
    CHECK_INT(steps >> BOX_STEP_SYS & 1, 1);
    CHECK_INT(steps >> BOX_STEP_TOOL & 1, 1);
    close(box_host.tool_fd);
    boxes_tool(-1);
    rig_close();
    rig_check_no_loops(state);
}

/* ---- a warden that dies ---- */

TEST(boxes_on_disks_outlive_the_warden)
{
    const char *state = rig_open();
    pid_t maker = fork();

    if (maker == 0) {
        disk_made(1, 100 * MIB, 0);
        disk_made(2, 100 * MIB, 0);
        struct rig_box box = box_on("stays", 1);
        const char *texts[] = {
            "/bin/sh", "-c",
            "echo go; i=0; while [ $i -lt 300 ]; do echo $i >> /workspace/log; i=$((i+1));"
            " sleep 0.002; done; exit 9",
            "PATH=/bin", "/"
        };

        CHECK_INT(mount_disk("stays", 2, "/vol", 0), 0);
        uint32_t exec = rig_start(&box, texts, 3, 1, 0);
        static struct rig_ran ran;
        while (ran.len == 0 && !rig_frame(&box, exec, &ran))
            ; /* it runs */
        raise(SIGKILL);
    }
    waitpid(maker, NULL, 0);
    CHECK_INT(rig_loops(state), 1);
    rig_close();
    rig_open_at(state);
    struct rig_heard heard = rig_name(WIRE_BOX_OPEN, "stays");
    struct rig_box box = rig_made("stays", &heard);
    fcntl(box.link, F_SETFL, 0);
    CHECK_INT(disk_ask(WIRE_DISK_STAT, 2, 0, 0).msg.status, 0);
    CHECK_INT(rig_loops(state), 1); /* found again, not made anew */
    CHECK_INT(disk_ask(WIRE_DISK_DROP, 1, 0, 0).msg.status, EBUSY);
    struct wire_msg again = rig_spec("again");
    again.spec.upper = 1;
    CHECK_INT(rig_ask(&again).msg.status, EBUSY);
    disk_made(3, 0, 1);
    CHECK_INT(rig_finish(&box, 1)->code, 9);
    box.execs = 1;
    check_sh(&box, "[ $(wc -l < /workspace/log) = 300 ] && touch /vol/x", INIT_AS_ROOT);
    rig_destroy(&box);
    box = box_on("again", 1);
    check_sh(&box, "[ $(wc -l < /workspace/log) = 300 ]", 0);
    rig_destroy(&box);
    CHECK_INT(rig_loops(state), 1);
    CHECK_INT(rig_left(state).dirs, 0);
    rig_close();
    rig_check_no_loops(state);
}

TEST(what_was_half_made_is_removed_at_the_start)
{
    const char *state = rig_open();
    struct wire_msg list = { .verb = WIRE_DISK_LIST };

    disk_made(1, 0, 0);
    rig_close();
    rig_check_no_loops(state);
    /* A child that dies between making and renaming. */
    rig_open_at(state);
    CHECK_INT(rig_ask(&list).msg.disk_rows.count, 1);
    pid_t maker = fork();
    if (maker == 0) {
        const char *why;
        int store = store_open(rig_state, &why);
        char name[64];

        CHECK(store >= 0);
        disk_name(2, name);
        CHECK_INT(disk_make(store, &(struct disk_wish){ .id = 2 }), 0);
        CHECK_INT(renameat(store, name, store, "making-0000000000000002"), 0);
        _exit(0);
    }
    int status;
    waitpid(maker, &status, 0);
    CHECK_INT(status, 0);
    CHECK_INT(disk_ask(WIRE_DISK_MAKE, 2, 0, 0).msg.status, EEXIST); /* somebody is at it */
    rig_close();
    rig_open_at(state);
    CHECK_INT(rig_ask(&list).msg.disk_rows.count, 1);
    disk_made(2, 0, 0);
    rig_close();
    rig_check_no_loops(state);
}

/* ---- images ---- */

static const char copy_programs[] =
    "cd /img && mkdir -p usr/bin etc secret && ln -s usr/bin bin && ln -s usr/lib64 lib64 &&"
    "ln -s usr/lib lib && cp -L /bin/sh /bin/ls /bin/cat /bin/stat /bin/touch /bin/grep usr/bin &&"
    "for f in $(ldd usr/bin/* | grep -o '/[^ ]*[.]so[^ ]*' | sort -u); do"
    " t=$(readlink -f $f); case $f in /usr/*) d=.$f;; *) d=./usr$f;; esac;"
    " mkdir -p $(dirname $d) && cp $t $d || exit 1; done;"
    "echo low > etc/name; echo hidden > secret/file; echo low > etc/both";

/* Disks 10 and 11: a small system, and what changes it. */
static void make_image(void)
{
    disk_made(10, 0, 0);
    disk_made(11, 0, 0);
    struct rig_box box = rig_create(rig_spec("maker"), "maker");

    CHECK_INT(mount_disk("maker", 10, "/img", 0), 0);
    CHECK_INT(mount_disk("maker", 11, "/top", 0), 0);
    check_sh(&box, copy_programs, INIT_AS_ROOT);
    check_sh(&box,
             "cd /top && mkdir -p usr/bin etc secret && mknod usr/bin/cat c 0 0 &&"
             "echo high > etc/both && echo new > secret/new &&"
             "python3 -c 'import os; os.setxattr(\"secret\", \"user.overlay.opaque\", b\"y\")'",
             INIT_AS_ROOT);
    rig_destroy(&box);
}

static struct wire_msg image_spec(const char *id, uint64_t upper)
{
    struct wire_msg spec = rig_spec(id);

    spec.spec.layer_count = 2;
    spec.spec.layers[0] = 10;
    spec.spec.layers[1] = 11;
    spec.spec.upper = upper;
    return spec;
}

TEST(an_image_is_made_of_disks)
{
    const char *state = rig_open();

    make_image();
    disk_made(1, 50 * MIB, 0);
    for (int on_disk = 0; on_disk < 2; on_disk++) {
        struct rig_box box = rig_create(image_spec("image", on_disk ? 1 : 0), "image");
        CHECK_INT(sweep_hold(table_find((char[BOX_ID_SIZE]){ "image" }), -1), -1);

        check_sh(&box,
                 "[ ! -e /bin/cat ] && [ ! -e /secret/file ] && grep -q new /secret/new &&"
                 "grep -q high /etc/both && grep -q low /etc/name && [ -c /dev/null ] &&"
                 "[ -d /proc/1 ] && [ \"$(stat -c %a /tmp)\" = 1777 ] && touch /tmp/x &&"
                 "[ ! -e /usr/bin/python3 ]",
                 0);
        check_sh(&box, "touch /usr/bin/more /etc/name && echo mine > /etc/both", INIT_AS_ROOT);
        rig_destroy(&box);
    }
    struct rig_box again = rig_create(image_spec("image", 1), "image");
    check_sh(&again, "grep -q mine /etc/both && [ -e /usr/bin/more ] && [ -e /tmp/x ]", 0);
    struct rig_box other = rig_create(image_spec("other", 0), "other");
    check_sh(&other, "grep -q high /etc/both && [ ! -e /usr/bin/more ]", 0);
    rig_destroy(&again);
    rig_destroy(&other);
    struct wire_msg missing = image_spec("image", 0);
    missing.spec.layers[1] = 99;
    struct rig_heard heard = rig_ask(&missing);
    CHECK_INT(heard.msg.status, ENOENT);
    CHECK_INT(heard.msg.created.step, BOX_STEP_LOWER);
    rig_close();
    rig_check_no_loops(state);
}

TEST(an_image_with_a_link_where_a_mount_belongs_fails_by_name)
{
    static const struct {
        const char *name;
        enum box_step step;
        uint64_t upper;
    } cases[] = { { "dev", BOX_STEP_DEV, 0 }, { "proc", BOX_STEP_PROC, 0 },
                  { "tmp", BOX_STEP_TMP, 0 }, { "tmp", BOX_STEP_TMP, 1 },
                  { "sys", BOX_STEP_SYS, 0 }, { "run", BOX_STEP_TOOL, 0 } };
    const char *state = rig_open();

    make_image();
    disk_made(1, 0, 0);
    boxes_tool(open("/usr/bin/true", O_PATH | O_CLOEXEC));
    for (uint64_t i = 0; i < ARRAY_LEN(cases); i++) {
        char script[128];

        disk_made(20 + i, 0, 0);
        struct rig_box maker = rig_create(rig_spec("maker"), "maker");
        CHECK_INT(mount_disk("maker", 20 + i, "/img", 0), 0);
        snprintf(script, sizeof(script), "ln -s /etc /img/%s", cases[i].name);
        check_sh(&maker, script, INIT_AS_ROOT);
        rig_destroy(&maker);
        struct wire_msg spec = image_spec("image", cases[i].upper);
        spec.spec.layers[1] = 20 + i;
        spec.spec.flags = BOX_WITH_SYS | BOX_WITH_TOOL;
        struct rig_heard heard = rig_ask(&spec);
        CHECK(heard.msg.status != 0);
        CHECK_INT(heard.msg.created.step, cases[i].step);
    }
    CHECK_INT(rig_left(state).dirs, 0);
    close(box_host.tool_fd);
    boxes_tool(-1);
    rig_close();
}

/* ---- what may be added ---- */

TEST(sys_and_the_tool_are_there_when_asked_for)
{
    rig_open();
    struct wire_msg spec = rig_spec("plain");
    struct rig_box box = rig_create(spec, "plain");

    check_sh(&box, "[ ! -e /sys/class ] && [ ! -e /run/atoll ]", 0);
    rig_destroy(&box);
    spec = rig_spec("with");
    spec.spec.flags = BOX_WITH_TOOL;
    struct wire_msg none = spec;
    CHECK_INT(rig_ask(&none).msg.status, ENOTSUP);
    boxes_tool(open("/usr/bin/id", O_PATH | O_CLOEXEC));
    spec.spec.flags = BOX_WITH_SYS | BOX_WITH_TOOL;
    box = rig_create(spec, "with");
    check_sh(&box, "[ \"$(/run/atoll -u)\" = 1000 ] && [ \"$(ls /sys/class/net)\" = lo ]", 0);
    check_sh(
        &box,
        "! rm -f /run/atoll && ! sh -c 'echo x > /run/atoll' && ! chmod 777 /run/atoll &&"
        "! sh -c 'echo 1 > /sys/class/net/lo/mtu' && ! touch /sys/x && [ -z \"$(ls /sys/fs)\" ] &&"
        "[ -z \"$(ls /sys/block)\" ] && [ -z \"$(ls /sys/firmware)\" ]",
        INIT_AS_ROOT);
    CHECK(strncmp(mount_options(box.pid, "/sys"), "ro,nosuid,nodev,noexec", 22) == 0);
    CHECK(strncmp(mount_options(box.pid, "/run/atoll"), "ro,nosuid,nodev", 15) == 0);
    rig_destroy(&box);
    close(box_host.tool_fd);
    boxes_tool(-1);
    rig_close();
}

static int copy_of(const char *from, const char *to)
{
    autofree char *command = xprintf("cp %s %s", from, to);
    const char *const argv[] = { "/bin/sh", "-c", command, NULL };
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        execv(argv[0], (char *const *)argv);
        _exit(127);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    return open(to, O_PATH | O_CLOEXEC);
}

/* An upgrade puts another file in the place of the program while the server runs. */
TEST(the_tool_is_there_when_its_file_was_replaced)
{
    const char *state = rig_open();
    autofree char *file = xprintf("%s/program", state);
    autofree char *other = xprintf("%s/other", state);
    autofree char *copy = xprintf("%s/images/tool", state);
    struct wire_msg spec = rig_spec("tool");

    boxes_tool(copy_of("/usr/bin/id", file));
    CHECK(link(file, other) == 0); /* it has another name: that does not help the kernel */
    CHECK(unlink(file) == 0);
    spec.spec.flags = BOX_WITH_TOOL;
    for (int i = 0; i < 2; i++) {
        struct rig_box box = rig_create(spec, "tool");

        check_sh(&box, "[ \"$(/run/atoll -u)\" = 1000 ]", 0);
        check_sh(&box, "! sh -c 'echo x > /run/atoll' && ! chmod 777 /run/atoll", INIT_AS_ROOT);
        CHECK(strncmp(mount_options(box.pid, "/run/atoll"), "ro,nosuid,nodev", 15) == 0);
        rig_destroy(&box);
    }
    CHECK(access(copy, F_OK) == 0);
    rig_close();
    CHECK(access(copy, F_OK) < 0);
    close(copy_of("/usr/bin/id", copy)); /* a warden that was killed leaves it */
    rig_open_at(state);
    CHECK(access(copy, F_OK) < 0);
    rig_close();
    close(box_host.tool_fd);
    boxes_tool(-1);
    unlink(other);
}

/* ---- how fast ---- */

static int set_io(const char *id, uint64_t bytes, uint64_t ops)
{
    struct wire_msg msg = { .verb = WIRE_BOX_LIMITS,
                            .limits = { .io_bytes = bytes, .io_ops = ops } };

    snprintf(msg.limits.name.id, sizeof(msg.limits.name.id), "%s", id);
    return (int)rig_ask(&msg).msg.status;
}

#define DIRECT "dd if=/data/f of=/dev/null bs=256k iflag=direct 2>/dev/null"

/* 3 MiB at 1 MiB a second: whatever else the machine does, they cannot take less than two. */
static bool is_slow(struct rig_box *box)
{
    int64_t begun = clock_mono_ms();

    check_sh(box, DIRECT, INIT_AS_ROOT);
    return clock_mono_ms() - begun >= 2000;
}

TEST(io_is_held_back_from_the_start_or_later)
{
    const char *state = rig_open();
    if (box_host.lost & BOX_LOST_IO)
        test_skip("no limits of io here");
    disk_made(1, 50 * MIB, 0);
    struct rig_left before = rig_before(state);
    struct wire_msg spec = rig_spec("io");

    spec.spec.upper = 1;
    struct rig_box box = rig_create(spec, "io");
    check_sh(&box,
             "mkdir -p /data && dd if=/dev/urandom of=/data/f bs=1M count=3 2>/dev/null; sync",
             INIT_AS_ROOT);
    struct rig_heard heard = rig_name(WIRE_BOX_APPLIED, "io");
    CHECK(heard.msg.applied.io_bytes == BOX_IO_FREE && heard.msg.applied.io_ops == BOX_IO_FREE);
    CHECK_INT(set_io("io", MIB, 0), 0); /* its processes are there already */
    heard = rig_name(WIRE_BOX_APPLIED, "io");
    CHECK_INT(heard.msg.applied.io_bytes, MIB);
    CHECK(heard.msg.applied.io_ops == BOX_IO_FREE);
    CHECK(is_slow(&box));
    CHECK(rig_name(WIRE_BOX_STAT, "io").msg.usage.io_read >= 3 * MIB);
    CHECK_INT(set_io("io", BOX_IO_FREE, 5000), 0);
    heard = rig_name(WIRE_BOX_APPLIED, "io");
    CHECK(heard.msg.applied.io_bytes == BOX_IO_FREE && heard.msg.applied.io_ops == 5000);
    rig_destroy(&box);

    spec.spec.io_bytes = MIB;
    spec.spec.io_ops = 1000;
    box = rig_create(spec, "io");
    heard = rig_name(WIRE_BOX_APPLIED, "io");
    CHECK(heard.msg.applied.io_bytes == MIB && heard.msg.applied.io_ops == 1000);
    CHECK(is_slow(&box));
    rig_destroy(&box);
    rig_settle();
    before.fds++; /* the directory of such groups is open from the first one on */
    rig_check_left(state, before);
    rig_close();
}

/* Children of those who have not been moved yet are not in it either, and nobody stops for that. */
TEST(io_is_held_back_also_of_those_who_are_born_meanwhile)
{
    static char all[65536], in[65536];

    rig_open();
    if (box_host.lost & BOX_LOST_IO || cgroup_io_place().v2)
        test_skip("no group of its own for io here");
    struct rig_box box = rig_create(rig_spec("storm"), "storm");
    const char *texts[] = { "/tmp/probe", "storm", "20", "A=b", "/tmp" };
    int64_t until = clock_mono_ms() + test_patience(10000);
    int status;

    rig_bring_probe(&box);
    rig_start(&box, texts, 3, 1, 0);
    while ((status = set_io("storm", MIB, 0)) == EAGAIN && clock_mono_ms() < until)
        ;
    CHECK_INT(status, 0);
    CHECK_INT(rig_name(WIRE_BOX_FREEZE, "storm").msg.status, 0);
    CHECK(cgroup_read(cgroup_pids_place().fd, "storm/cgroup.procs", all, sizeof(all)) > 0);
    CHECK(cgroup_read(cgroup_io_place().fd, "storm/cgroup.procs", in, sizeof(in)) > 0);
    CHECK_STR(in, all);
    rig_destroy(&box);
    rig_close();
}

/* A volume may be the first disk of all: its device was not there when the limit was set. */
TEST(io_of_a_disk_that_comes_later_is_held_back_too)
{
    rig_open();
    if (box_host.lost & BOX_LOST_IO)
        test_skip("no limits of io here");
    struct wire_msg spec = rig_spec("late");
    spec.spec.io_bytes = MIB;
    struct rig_box box = rig_create(spec, "late");
    disk_made(1, 50 * MIB, 0);
    struct wire_msg mount = { .verb = WIRE_BOX_MOUNT, .mount = { .disk = 1, .target = "/data" } };

    snprintf(mount.mount.name.id, sizeof(mount.mount.name.id), "late");
    CHECK_INT(rig_ask(&mount).msg.status, 0);
    check_sh(&box,
             "mkdir -p /data && dd if=/dev/urandom of=/data/f bs=1M count=3 2>/dev/null; sync",
             INIT_AS_ROOT);
    CHECK(is_slow(&box));
    rig_destroy(&box);
    rig_close();
}
