/*
 * When the egress process is known to have let go of the sockets of a box that ended, so that they
 * may be another's. This program is that process too: started as "atoll egress" it says hello,
 * stops itself until it is sent on, and then hears all that it is told.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "base/test.h"
#include "warden/boxes.h"
#include "warden/net.h"
#include "wire/layout.h"

#define SLOT 7u
#define LAST 9u /* told of this one, it says what is not its to say */
#define MANY 100000u

__attribute__((constructor)) static void play(int argc, char **argv)
{
    struct wire_msg msg = { .verb = WIRE_HELLO,
                            .hello = { .role = WIRE_ROLE_EGRESS, .pid = (uint32_t)getpid() } };
    int fds[WIRE_FDS_MAX];
    unsigned count;

    if (argc < 2 || strcmp(argv[0], "atoll") != 0 || strcmp(argv[1], "egress") != 0)
        return;
    fcntl(EGRESS_FD_LINK, F_SETFL, 0);
    if (wire_send(EGRESS_FD_LINK, &msg, NULL, 0) < 0 ||
        wire_recv(EGRESS_FD_LINK, &msg, fds, &count) != 1)
        _exit(1);
    raise(SIGSTOP);
    while (wire_recv(EGRESS_FD_LINK, &msg, fds, &count) == 1)
        if (msg.verb == WIRE_EGRESS_GONE && msg.egress.slot == LAST)
            (void)!wire_send(EGRESS_FD_LINK, &(struct wire_msg){ .verb = WIRE_PONG }, NULL, 0);
    _exit(0);
}

static void nobody_hears(void *owner, const struct wire_msg *msg, const int *fds, unsigned count)
{
    (void)owner;
    (void)msg;
    (void)fds;
    (void)count;
}

static void pump(void)
{
    struct pollfd waits[EGRESS_WAITS];
    unsigned count = egress_waits(waits);

    CHECK(poll(waits, count, 20) >= 0 || errno == EINTR);
    egress_woken(waits, count);
}

/* It has been told hello, and has stopped. */
static void pump_until_stopped(void)
{
    siginfo_t info = { 0 };

    for (int i = 0; i < 1000 && info.si_pid == 0; i++) {
        pump();
        CHECK(waitid(P_PID, (id_t)egress_pid(), &info, WSTOPPED | WNOHANG) == 0);
    }
    CHECK(info.si_pid == egress_pid());
}

static void as_the_warden(void)
{
    struct warden_args args = { .api_uid = -1, .api_gid = -1, .ids = -1 };
    int fds[WARDEN_FD_LISTENERS - WARDEN_FD_START],
        self = open("/proc/self/exe", O_PATH | O_CLOEXEC);

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (size_t i = 0; i < ARRAY_LEN(fds); i++)
        fds[i] =
            i == WARDEN_FD_ATOLL - WARDEN_FD_START ? self : open("/dev/null", O_RDONLY | O_CLOEXEC);
    CHECK(layout_place(fds, ARRAY_LEN(fds), self) >= 0);

    CHECK(net_forgotten(SLOT)); /* there is nobody who could know */
    egress_begin(&args, nobody_hears, NULL);
    CHECK(egress_pid() && net_forgotten(SLOT));
    pump_until_stopped();
    net_tell(SLOT);
    CHECK(net_forgotten(SLOT)); /* what it is told next comes after this */

    unsigned told = 0; /* until its link takes no more */
    while (net_forgotten(SLOT) && told++ < MANY)
        net_tell(SLOT);
    CHECK(told > 1 && told < MANY);
    pump();
    CHECK(!net_forgotten(SLOT));
    CHECK(kill(egress_pid(), SIGCONT) == 0);
    for (int i = 0; i < 1000 && !net_forgotten(SLOT); i++)
        pump();
    CHECK(net_forgotten(SLOT));

    net_tell(LAST); /* it will be killed for what it says: until it is dead it may do anything */
    pid_t pid = egress_pid();
    bool doubted = false;
    for (int i = 0; i < 1000 && egress_pid() == pid; i++) {
        pump();
        doubted |= egress_pid() == pid && !net_forgotten(SLOT);
    }
    CHECK(doubted && egress_pid() == 0 && net_forgotten(SLOT));
    egress_end();
}

TEST(sockets_are_anothers_when_the_egress_process_knows)
{
    pid_t pid = fork();

    if (pid == 0) {
        as_the_warden();
        _exit(0);
    }
    int status = -1;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_INT(status, 0);
}
