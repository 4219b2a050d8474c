/*
 * The egress process, and what it is told: which boxes there are, and where the api process is.
 *
 *   none ── due ──▶ started ── HELLO ──▶ greeted: told of every box ── READY ──▶ deaths forgiven
 *     ▲                                death, from anywhere │
 *     └──────────────────── back-off, a second at most ◀────┘
 *
 * What it must be told is a bit for each slot, not a queue: a bit is set when something about the
 * slot has changed, and what the slot is at the moment of sending is what is said. So a process
 * that reads slowly costs nothing here, and one that is new gets all bits set. It holds nothing
 * that the warden needs: if it misbehaves it is killed and started again, and the sockets of the
 * boxes, with the connections that wait in them, are handed to the next.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/limits.h"
#include "warden/boxes.h"
#include "warden/net.h"

#define WORDS (BOX_SLOTS / 64)
#define AGAIN_MS 50 /* until the sockets of an adopted box are tried for again */

struct bits {
    uint64_t words[WORDS];
    unsigned count;
};

static struct slot {
    bool made; /* then: */
    struct net net;
    int kept; /* memory for the egress process, which it finds again after its death; -1: no such
                 process was told of this box yet */
} slots[BOX_SLOTS];
static struct bits untold; /* slots */
static struct bits unmade; /* of adopted boxes, whose sockets could not be made yet */

enum due { DUE_START, DUE_HELLO, DUE_PING, DUE_PONG, DUE_MAKE, DUES };

static struct {
    const struct warden_args *args; /* NULL: not begun, or over */
    boxes_say_fn *say;
    void *owner;
    struct child child;
    bool greeted, condemned, full; /* full: its link took no more */
    bool api;                      /* one was greeted that has no peer yet */
    unsigned deaths;
    struct wire_budget budget;
    uint32_t ping;
    int64_t due[DUES];
} egress = { .child = { .pidfd = -1, .link = -1 } };

static bool bit_get(const struct bits *bits, uint32_t slot)
{
    return bits->words[slot / 64] >> slot % 64 & 1;
}

static void bit_set(struct bits *bits, uint32_t slot, bool on)
{
    if (bit_get(bits, slot) == on)
        return;
    bits->words[slot / 64] ^= UINT64_C(1) << slot % 64;
    bits->count += on ? 1u : -1u;
}

/* The first that is set; there must be one. */
static uint32_t bit_first(const struct bits *bits)
{
    uint32_t word = 0;

    while (!bits->words[word])
        word++;
    return word * 64 + (uint32_t)__builtin_ctzll(bits->words[word]);
}

static void due_in(enum due due, int64_t ms)
{
    egress.due[due] = clock_mono_ms() + ms;
}

static void condemn(const char *why)
{
    if (egress.condemned || !egress.child.pid)
        return;
    log_error("killing the egress process", kv_str("why", why), kv_int("pid", egress.child.pid));
    egress.condemned = true;
    child_kill(&egress.child);
}

/* ---- what it is told ---- */

/* False when its link takes no more now. */
static bool tell(const struct wire_msg *msg, const int *fds, unsigned count)
{
    if (wire_send(egress.child.link, msg, fds, count) == 0)
        return true;
    egress.full = errno == EAGAIN;
    if (!egress.full && errno != EPIPE && errno != ECONNRESET)
        condemn("it cannot be told anything");
    return false;
}

/* Of a size that whoever holds it cannot change. Without it, names end with the process. */
static int kept_make(void)
{
    autoclose int fd = memfd_create("egress", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0 || ftruncate(fd, EGRESS_KEPT_SIZE) < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0)
        return -1;
    fd_lift(&fd);
    return take_fd(&fd);
}

static bool tell_slot(uint32_t slot)
{
    const struct box *box = table_at(slot);
    struct wire_msg msg = { .verb = WIRE_EGRESS_GONE, .egress.slot = slot };
    int fds[NET_LISTENERS + 2];
    unsigned count = 0;

    if (box->state == BOX_RUNNING && slots[slot].made) {
        msg.verb = WIRE_EGRESS_BOX;
        msg.egress.flags = slots[slot].net.steer >= 0 ? EGRESS_STEERED : 0;
        memcpy(msg.egress.name.id, box->id, BOX_ID_SIZE);
        count = net_fds(&slots[slot].net, fds);
        if (slots[slot].kept < 0)
            slots[slot].kept = kept_make();
        if (slots[slot].kept >= 0) {
            msg.egress.flags |= EGRESS_KEPT;
            fds[count++] = slots[slot].kept;
        }
    }
    return tell(&msg, fds, count);
}

static void tell_all(void)
{
    while (egress.greeted && !egress.condemned && !egress.full && untold.count) {
        uint32_t slot = bit_first(&untold);

        if (!tell_slot(slot))
            return;
        bit_set(&untold, slot, false);
    }
}

/* A new pair for both, when both are there. */
static void introduce(void)
{
    struct wire_msg msg = { .verb = WIRE_EGRESS_PEER };
    int pair[2];

    if (!egress.greeted || egress.condemned || !egress.api)
        return;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0) {
        log_error("api and egress process cannot talk", kv_str("error", strerror(errno)));
        return;
    }
    if (tell(&msg, &pair[0], 1))
        egress.say(egress.owner, &msg, &pair[1], 1);
    else if (egress.full) /* an empty link that takes nothing */
        condemn("it cannot be told anything");
    close(pair[0]);
    close(pair[1]);
}

void egress_api_is_new(void)
{
    egress.api = true;
    introduce();
}

/* ---- sockets of boxes ---- */

bool net_take_back(uint32_t slot, struct net *out)
{
    bit_set(&unmade, slot, false);
    if (!slots[slot].made)
        return false;
    slots[slot].made = false;
    *out = slots[slot].net;
    if (slots[slot].kept >= 0)
        close(slots[slot].kept);
    bit_set(&untold, slot, true);
    tell_all();
    return true;
}

void net_leave(uint32_t slot)
{
    struct net net;

    if (net_take_back(slot, &net))
        net_close(&net);
}

/* Until then it may still answer at those sockets, for the box that was there before. */
bool net_forgotten(uint32_t slot)
{
    return !egress.child.pid || (!egress.condemned && !bit_get(&untold, slot));
}

void net_keep(uint32_t slot, struct net *net)
{
    net_leave(slot);
    if (net->dns < 0)
        return;
    net_lift(net);
    slots[slot] = (struct slot){ true, *net, -1 };
    *net = NET_NONE;
}

void net_tell(uint32_t slot)
{
    bit_set(&untold, slot, true);
    tell_all();
}

static bool adopt(uint32_t slot)
{
    const struct box *box = table_at(slot);
    struct net net = NET_NONE;
    int rc = box_host.rootless ? rootless_net(box->pidfd, &net) : net_make_in(box->pidfd, &net);

    if (rc < 0)
        return false;
    net_keep(slot, &net);
    net_tell(slot);
    return true;
}

/* What the last warden held is perhaps still held by an egress process that is about to die. */
void net_adopt(uint32_t slot)
{
    if (adopt(slot))
        return;
    log_debug("no sockets in a sandbox yet", kv_int("slot", slot),
              kv_str("error", strerror(errno)));
    bit_set(&unmade, slot, true);
    due_in(DUE_MAKE, AGAIN_MS);
}

static void make_again(void)
{
    for (uint32_t slot = 0; slot < BOX_SLOTS && unmade.count; slot++)
        if (bit_get(&unmade, slot) && adopt(slot))
            bit_set(&unmade, slot, false);
    if (unmade.count)
        due_in(DUE_MAKE, AGAIN_MS);
}

/* ---- what it says ---- */

static void on_hello(const struct wire_msg *msg)
{
    struct wire_msg back = { .verb = WIRE_HELLO, .number = msg->number };

    if (egress.greeted || msg->hello.role != WIRE_ROLE_EGRESS ||
        (pid_t)msg->hello.pid != egress.child.pid) {
        condemn("wrong hello");
        return;
    }
    back.hello.role = WIRE_ROLE_WARDEN;
    back.hello.pid = (uint32_t)getpid();
    egress.greeted = tell(&back, NULL, 0);
    egress.due[DUE_HELLO] = 0;
    introduce();
    tell_all();
}

static void on_ready(const struct wire_msg *msg)
{
    (void)msg;
    if (!egress.greeted || egress.due[DUE_PING] || egress.due[DUE_PONG]) {
        condemn("ready out of turn");
        return;
    }
    egress.deaths = 0;
    due_in(DUE_PING, WARDEN_PING_MS);
}

static void on_pong(const struct wire_msg *msg)
{
    if (!egress.due[DUE_PONG] || msg->number != egress.ping) {
        condemn("pong to no ping");
        return;
    }
    egress.due[DUE_PONG] = 0;
    due_in(DUE_PING, WARDEN_PING_MS);
}

/* clang-format off */
static void (*const verb_fn[WIRE_VERBS])(const struct wire_msg *msg) = {
    [WIRE_HELLO] = on_hello,
    [WIRE_READY] = on_ready,
    [WIRE_PONG]  = on_pong,
};
/* clang-format on */

static void hear(void)
{
    struct wire_msg msg;
    int fds[WIRE_FDS_MAX];
    unsigned count;
    int got = wire_recv(egress.child.link, &msg, fds, &count);

    if (got < 0 && errno == EAGAIN)
        return;
    for (unsigned i = 0; i < count; i++)
        close(fds[i]);
    if (got <= 0)
        condemn(got == 0 ? "it closed its link" : "malformed message");
    else if (count || !verb_fn[msg.verb])
        condemn("what it says is not its to say");
    else if (!wire_budget_take(&egress.budget, WIRE_PER_SECOND_MAX, clock_mono_ms()))
        condemn("too many messages");
    else
        verb_fn[msg.verb](&msg);
}

/* ---- its life ---- */

static void start_later(void)
{
    int64_t delay_ms = restart_delay_ms(++egress.deaths);

    due_in(DUE_START, MIN(delay_ms, (int64_t)EGRESS_RESTART_MAX_MS));
}

static void start(void)
{
    egress.greeted = egress.condemned = egress.full = false;
    egress.budget = (struct wire_budget){ 0 };
    if (spawn_egress(egress.args, &egress.child) < 0) {
        log_error("cannot start the egress process", kv_str("error", strerror(errno)));
        start_later();
        return;
    }
    for (const struct box *box = table_next(0); box; box = table_next(table_slot(box) + 1))
        bit_set(&untold, table_slot(box), true);
    due_in(DUE_HELLO, WARDEN_HELLO_MS);
}

static void died(void)
{
    pid_t pid = egress.child.pid;
    int status = child_end(&egress.child);

    egress.greeted = false;
    egress.due[DUE_HELLO] = egress.due[DUE_PING] = egress.due[DUE_PONG] = 0;
    if (!egress.condemned)
        log_error("the egress process ended, it is started again", kv_int("pid", pid),
                  kv_int("signal", WIFSIGNALED(status) ? WTERMSIG(status) : 0),
                  kv_int("status", WIFEXITED(status) ? WEXITSTATUS(status) : 0));
    if (egress.args)
        start_later();
}

void egress_begin(const struct warden_args *args, boxes_say_fn *to_api, void *owner)
{
    egress.args = args;
    egress.say = to_api;
    egress.owner = owner;
    start();
}

unsigned egress_waits(struct pollfd waits[EGRESS_WAITS])
{
    if (!egress.child.pid)
        return 0;
    waits[0] = (struct pollfd){ .fd = egress.condemned ? -1 : egress.child.link,
                                .events = (short)(POLLIN | (egress.full ? POLLOUT : 0)) };
    waits[1] = (struct pollfd){ .fd = egress.child.pidfd, .events = POLLIN };
    return EGRESS_WAITS;
}

void egress_woken(const struct pollfd *waits, unsigned count)
{
    if (count != EGRESS_WAITS)
        return;
    if (waits[0].revents & (POLLIN | POLLHUP | POLLERR) && !waits[1].revents)
        hear();
    if (waits[0].revents & POLLOUT)
        egress.full = false;
    if (waits[1].revents)
        died();
    tell_all();
}

static void ping(void)
{
    struct wire_msg msg = { .verb = WIRE_PING, .number = ++egress.ping };

    (void)tell(&msg, NULL, 0); /* who does not take it does not answer it */
    due_in(DUE_PONG, WARDEN_PONG_MS);
}

static void hello_late(void)
{
    condemn("no hello");
}

static void pong_late(void)
{
    condemn("it does not answer");
}

/* clang-format off */
static void (*const due_fn[DUES])(void) = {
    [DUE_START] = start,
    [DUE_HELLO] = hello_late,
    [DUE_PING]  = ping,
    [DUE_PONG]  = pong_late,
    [DUE_MAKE]  = make_again,
};
/* clang-format on */

void egress_run_due(void)
{
    int64_t now = clock_mono_ms();

    for (int i = 0; i < DUES; i++)
        if (egress.due[i] && egress.due[i] <= now) {
            egress.due[i] = 0;
            due_fn[i]();
        }
}

int64_t egress_due_ms(void)
{
    int64_t first = 0;

    for (int i = 0; i < DUES; i++)
        if (egress.due[i] && (!first || egress.due[i] < first))
            first = egress.due[i];
    return first;
}

pid_t egress_pid(void)
{
    return egress.child.pid;
}

void egress_end(void)
{
    egress.args = NULL;
    memset(egress.due, 0, sizeof(egress.due));
    if (!egress.child.pid)
        return;
    egress.condemned = true;
    child_kill(&egress.child);
    died();
}
