/* Rules about files, from inside: what a command can open that has some, by whatever way. */
#include "warden/disk_rig.h"

#define check_ruled(box, rules, script, flags)                                                     \
    do {                                                                                           \
        struct rig_ran *ran_ =                                                                     \
            rig_ruled(box, rules, "PATH=/usr/bin:/bin; set -e\n" script, flags);                   \
        if (ran_->code != 0 || ran_->error)                                                        \
            test_fail(__FILE__, __LINE__, "code %d, error %d in step %u: %s", ran_->code,          \
                      ran_->error, ran_->step, ran_->out);                                         \
    } while (0)

/* Fails with this text. */
#define NO                                                                                         \
    "no() { if \"$@\" 2>/tmp/why; then echo \"allowed: $*\"; exit 9; fi\n"                         \
    "grep -Eq 'ermission denied|ross-device|nvalid cross' /tmp/why ||"                             \
    " { cat /tmp/why; exit 8; }; }\n"                                                              \
    "no_sh() { no sh -c \"$1\"; }\n"

static struct rig_box made(void)
{
    struct rig_box box = rig_create(rig_spec("box"), "box");

    check_sh(&box,
             "mkdir -p /srv/open /srv/read /srv/shut/deep && echo secret > /srv/shut/f &&"
             " echo text > /srv/read/f && echo mine > /srv/open/f && echo one > /srv/one &&"
             " ln -s /srv/shut/f /srv/open/sym && ln -s /srv/shut /srv/open/symdir &&"
             " chown -R 1000 /srv && chmod -R 777 /srv && cp /usr/bin/true /srv/read/prog",
             INIT_AS_ROOT);
    return box;
}

#define RULES "w/srv/open r/srv/read r/srv/one"

TEST(what_no_rule_names_is_closed_by_every_way)
{
    rig_open();
    struct rig_box box = made();

    for (int root = 0; root < 2; root++) {
        uint32_t as = root ? INIT_AS_ROOT : 0;

        /* what is open */
        check_ruled(&box, RULES,
                    "cat /srv/open/f /srv/read/f /srv/one /etc/passwd >/dev/null; ls /srv/read\n"
                    "echo more >> /srv/open/f; mkdir /srv/open/d; mv /srv/open/d /srv/open/e\n"
                    "rmdir /srv/open/e; /srv/read/prog; echo x > /tmp/x; mv /tmp/x /srv/open/x\n"
                    "rm /srv/open/x; cat /proc/self/status >/dev/null; echo > /dev/null",
                    as);
        /* plainly */
        check_ruled(&box, RULES,
                    NO
                    "no cat /srv/shut/f; no ls /srv/shut; no ls /srv; no ls /\n"
                    "no touch /srv/shut/new; no_sh 'echo x > /srv/shut/f'; no rm /srv/shut/f\n"
                    "no mkdir /srv/shut/d; no truncate -s 0 /srv/shut/f; no rmdir /srv/shut/deep\n"
                    "no ln -s x /srv/shut/l; no mkfifo /srv/shut/p",
                    as);
        /* what may only be read */
        check_ruled(&box, RULES,
                    NO "no_sh 'echo x > /srv/read/f'; no rm /srv/read/f; no touch /srv/read/new\n"
                       "no truncate -s 0 /srv/read/f; no_sh 'echo x >> /srv/one'; no rm /srv/one\n"
                       "no mv /srv/read/f /srv/open/g; no touch /etc/x",
                    as);
        /* links, names that move, the directory itself from inside, magic links */
        check_ruled(&box, RULES,
                    NO "no cat /srv/open/sym; no ls /srv/open/symdir/; no cat /srv/open/../shut/f\n"
                       "no ln /srv/shut/f /srv/open/hard; no mv /srv/shut/f /srv/open/moved\n"
                       "no mv /srv/open/f /srv/shut/f2; no ln /srv/read/f /srv/open/hard\n"
                       "no cat /proc/self/root/srv/shut/f; cd /srv/shut; no cat f\n"
                       "no cat /proc/self/cwd/f",
                    as);
        /* a descriptor that is only a place, and a child of a child */
        check_ruled(&box, RULES,
                    "perl -e 'use Fcntl; sysopen(F, \"/srv/shut/f\", 010000000) or exit 5;"
                    " open(G, \"<\", \"/proc/self/fd/\" . fileno(F)) and exit 6;"
                    " $!{EACCES} or exit 7'\n" NO "no sh -c 'sh -c \"exec cat /srv/shut/f\"'\n"
                    "setsid -w sh -c 'cat /srv/shut/f' && exit 4; true",
                    as);
    }
    check_sh(&box, "grep -qx secret /srv/shut/f && grep -qx text /srv/read/f", 0);
    rig_destroy(&box);
    rig_close();
}

TEST(a_second_set_only_narrows)
{
    rig_open();
    struct rig_box box = made();

    check_ruled(&box, "w/srv/open W/srv", NO "echo > /srv/open/f; no cat /srv/shut/f", 0);
    check_ruled(&box, "w/srv R/srv/open",
                NO "cat /srv/open/f; no cat /srv/shut/f\n"
                   "no_sh 'echo > /srv/open/f'",
                0);
    check_ruled(&box, "R/", NO "cat /srv/shut/f; ls /; no touch /srv/open/x", 0);
    check_sh(&box, "cat /srv/shut/f && touch /srv/open/x", 0); /* without any */
    rig_destroy(&box);
    rig_close();
}

TEST(a_rule_that_cannot_be_is_named)
{
    rig_open();
    struct rig_box box = made();
    struct rig_ran *ran = rig_ruled(&box, "r/srv w/srv/none R/srv", "true", 0);

    CHECK_INT(ran->error, ENOENT);
    CHECK_INT(ran->step, INIT_STEP_FILES + 1);
    ran = rig_ruled(&box, "r/srv R/proc/self/root", "true", 0); /* would be everything */
    CHECK_INT(ran->error, ELOOP);
    CHECK_INT(ran->step, INIT_STEP_FILES + 1);
    check_sh(&box, "mkdir -p /opt/in && chmod 700 /opt", INIT_AS_ROOT);
    ran = rig_ruled(&box, "r/opt/in", "true", 0); /* looked up as the user */
    CHECK_INT(ran->error, EACCES);
    CHECK_INT(ran->step, INIT_STEP_FILES);
    ran = rig_ruled(&box, "rsrv", "true", 0);
    CHECK(ran->error == EINVAL && ran->step == INIT_STEP_TEXT);
    ran = rig_ruled(&box, "x/srv", "true", 0);
    CHECK(ran->error == EINVAL && ran->step == INIT_STEP_TEXT);
    rig_destroy(&box);
    rig_close();
}

TEST(what_is_mounted_later_below_an_open_place_is_open)
{
    rig_open();
    disk_made(5, 50 * MIB, 0);
    disk_made(6, 50 * MIB, 0);
    struct rig_box box = made();

    CHECK_INT(mount_disk("box", 5, "/srv/open/vol", 0), 0);
    CHECK_INT(mount_disk("box", 6, "/srv/shut/vol", 0), 0);
    check_sh(&box, "chmod 777 /srv/open/vol /srv/shut/vol && echo x > /srv/shut/vol/f",
             INIT_AS_ROOT);
    check_ruled(&box, RULES,
                NO "echo x > /srv/open/vol/f; cat /srv/open/vol/f\n"
                   "no cat /srv/shut/vol/f; no touch /srv/shut/vol/g",
                0);
    rig_destroy(&box);
    rig_close();
}
