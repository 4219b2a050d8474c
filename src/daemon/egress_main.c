/*
 * The start of the egress process: hello, jail, loop. It gets its link, its key and two numbers,
 * and everything else over that link (wire/egress.h). There is nothing to drain: who kills it loses
 * connections and nothing else.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>

#include "base/id.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/signals.h"
#include "daemon/daemon.h"
#include "daemon/jail.h"
#include "egress/egress.h"
#include "wire/layout.h"
#include "wire/wire.h"

static int say(enum wire_verb verb, uint32_t number, struct err *err)
{
    struct wire_msg msg = { .verb = (uint16_t)verb, .number = number };

    if (verb == WIRE_HELLO) {
        msg.hello.role = WIRE_ROLE_EGRESS;
        msg.hello.pid = (uint32_t)getpid();
    }
    return wire_send(EGRESS_FD_LINK, &msg, NULL, 0) < 0 ? err_sys(err, "tell the warden") : 0;
}

static int greet(struct err *err)
{
    struct pollfd wait = { .fd = EGRESS_FD_LINK, .events = POLLIN };
    struct wire_msg msg;
    int fds[WIRE_FDS_MAX];
    unsigned count;

    if (say(WIRE_HELLO, 1, err) < 0)
        return -1;
    if (poll(&wait, 1, WARDEN_HELLO_MS) != 1 || wire_recv(EGRESS_FD_LINK, &msg, fds, &count) != 1 ||
        msg.verb != WIRE_HELLO || count)
        return err_set(err, ERR_INTERNAL, "the warden does not answer");
    return 0;
}

/*
 * The key is read once; the descriptor is closed before anybody is heard. Without one there is a
 * key that nothing is sealed to: then no secret opens, and all else works.
 */
static void read_key(struct seal_private *out)
{
    ssize_t got = pread(EGRESS_FD_KEY, out, sizeof(*out), 0);

    close(EGRESS_FD_KEY);
    if (got == (ssize_t)sizeof(*out))
        return;
    log_warn("no key was given, secrets do not go into requests");
    random_bytes(out, sizeof(*out));
}

/* Authorities that an operator adds to the machine's own; read once, as the key is. */
static void read_roots(struct buf *out)
{
    char block[8192];
    ssize_t got;

    while (out->len < CONF_ROOTS_MAX &&
           (got = pread(EGRESS_FD_ROOTS, block, sizeof(block), (off_t)out->len)) > 0)
        buf_append(out, block, (size_t)got);
    close(EGRESS_FD_ROOTS);
}

/* Landlock is a second wall around a process that can open no file anyway. */
static int enter_jail(struct err *err)
{
    static const char *const may_miss[] = { "landlock", NULL };
    const struct jail jail = { .egress = true, .data_fd = -1, .allow_degraded = may_miss };
    int lost = jail_enter(&jail, err);

    if (lost >= 0)
        mem_untraced();
    return lost < 0 ? -1 : 0;
}

static int run(struct err *err)
{
    struct loop *loop = NULL;
    struct egress *egress = NULL;
    struct seal_private key;
    autobuf struct buf roots = { 0 };

    read_key(&key); /* first: its number may be anybody's afterwards */
    read_roots(&roots);
    int rc = loop_new(&loop, err);
    if (rc == 0)
        rc = egress_new(&egress, loop, EGRESS_FD_LINK, &key, buf_view(&roots), err);
    explicit_bzero(&key, sizeof(key));
    if (rc == 0)
        rc = greet(err);
    if (rc == 0)
        rc = enter_jail(err);
    if (rc == 0)
        rc = say(WIRE_READY, 2, err);
    if (rc == 0)
        loop_run(loop);
    egress_free(egress);
    loop_free(loop);
    return rc;
}

int egress_main(char **argv)
{
    int level = argv[2][0] - '0', format = argv[3][0] - '0';
    struct err err = { 0 };

    if (level < LOG_DEBUG || level > LOG_ERROR || format < LOG_TEXT || format > LOG_JSON ||
        fcntl(EGRESS_FD_LINK, F_SETFD, FD_CLOEXEC) < 0) {
        fprintf(stderr, "atoll egress is a part of the server; start it with `atoll serve`\n");
        return 64;
    }
    prctl(PR_SET_NAME, "atoll-egress", 0, 0, 0);
    log_setup((enum log_level)level, (enum log_format)format, "egress");
    signals_block();
    if (run(&err) < 0) {
        log_error("no egress", kv_str("error", err.msg));
        return 1;
    }
    return 0;
}
