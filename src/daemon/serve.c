/*
 * The prelude of the server. It runs as whoever started it and does, in this order, all that can
 * fail with a message worth reading: the state directory, its lock, the admin token, the TLS files,
 * the listeners. Then it puts the descriptors where the warden expects them (wire/layout.h) and
 * becomes the warden: same process, so a service manager sees one main process from start to end,
 * and the listeners survive whatever happens to the process that serves.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/program.h"
#include "daemon/daemon.h"
#include "daemon/report.h"
#include "daemon/rootless.h"
#include "daemon/settings.h"
#include "daemon/state.h"
#include "net/sock.h"

#define WARDEN_NAME "atoll-warden"
#define LISTEN_BACKLOG 4096
#define LEAVING_MS 2000
#define LEAVING_STEP_MS 20

/* All that is gathered for the warden. */
struct prelude {
    struct conf *conf;  /* owned */
    struct arena arena; /* of `start` */
    struct start start;
    struct state state;
    int listeners[LISTENERS_MAX];
    int64_t api_uid; /* -1: ours */
    int64_t ids;     /* of the user namespace that we are in, or ROOTLESS_NONE */
    int warden_fd, atoll_fd, start_fd, settings_fd, key_fd, roots_fd;
    bool killed;   /* the server before us did not end by itself */
    int waited_ms; /* for its listeners */
};

static void prelude_free(struct prelude *p)
{
    const int fds[] = { p->warden_fd,   p->atoll_fd, p->start_fd,
                        p->settings_fd, p->key_fd,   p->roots_fd };

    for (size_t i = 0; i < ARRAY_LEN(fds); i++)
        if (fds[i] >= 0)
            close(fds[i]);
    for (unsigned i = 0; i < p->start.listener_count; i++)
        close(p->listeners[i]);
    state_close(&p->state);
    arena_free(&p->arena);
    conf_free(p->conf);
}

/* A server started without one of 0, 1, 2 must not get a socket there. */
static void fill_stdio(void)
{
    int fd;

    do
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    while (fd >= 0 && fd <= 2);
    if (fd > 2)
        close(fd);
    for (int i = 0; i <= 2; i++)
        if (fcntl(i, F_GETFD) == FD_CLOEXEC)
            fcntl(i, F_SETFD, 0);
}

/*
 * Many connections need many descriptors, and so do many sandboxes. The hard limit is what the
 * administrator meant, but the usual one is from before there were servers of this kind: who may
 * raise it does, to what all sandboxes need.
 */
static void raise_nofile(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return;
    if (limit.rlim_max < SERVER_NOFILE &&
        setrlimit(RLIMIT_NOFILE, &(struct rlimit){ SERVER_NOFILE, SERVER_NOFILE }) == 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
        log_warn("the limit of open files stays as it is", kv_str("error", strerrordesc_np(errno)));
}

/* ---- listeners ---- */

static int add_listener(struct prelude *p, int fd, const char *text, bool tls)
{
    unsigned at = p->start.listener_count++;

    p->listeners[at] = fd;
    p->start.listeners[at] = (struct start_listener){ arena_strdup(&p->arena, text), tls };
    return 0;
}

/*
 * We hold the lock, so a listener that is still there belongs to a server that was killed and whose
 * last process takes a moment to end. A server that ended by itself removed its socket.
 */
static bool still_leaving(struct prelude *p, const struct err *err)
{
    if (err->code != ERR_CONFLICT || !p->killed || p->waited_ms >= LEAVING_MS)
        return false;
    poll(NULL, 0, LEAVING_STEP_MS); /* at the start nothing else waits for us */
    p->waited_ms += LEAVING_STEP_MS;
    return true;
}

static int listen_one(struct prelude *p, const char *wish, struct err *err)
{
    struct conf_listen parsed;
    char text[SOCK_TEXT_SIZE], actual[SOCK_TEXT_SIZE];

    if (conf_listen_parse(wish, &parsed, err) < 0)
        return -1;
    bool v6 = strchr(parsed.host, ':') != NULL;
    if (parsed.is_unix)
        snprintf(text, sizeof(text), "unix:%s", parsed.path);
    else
        snprintf(text, sizeof(text), "%s%s%s:%u", v6 ? "[" : "", parsed.host, v6 ? "]" : "",
                 parsed.port);
    int fd;
    do
        fd = sock_listen(text, LISTEN_BACKLOG, actual, err);
    while (fd < 0 && still_leaving(p, err));
    if (fd < 0 && err->code == ERR_CONFLICT) {
        struct err why = *err;

        return err_set(err, ERR_CONFLICT, "%s; choose another place with --listen", why.msg);
    }
    return fd < 0 ? -1 : add_listener(p, fd, actual, parsed.tls);
}

/* The Unix socket of the state directory comes first, so that the warden's last act is known. */
static int listen_all(struct prelude *p, struct err *err)
{
    int fd;

    p->killed = faccessat(p->state.dir_fd, STATE_SOCKET, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
    do
        fd = state_listen(&p->state, LISTEN_BACKLOG, err);
    while (fd < 0 && still_leaving(p, err));
    if (fd < 0)
        return -1;
    add_listener(p, fd, arena_printf(&p->arena, "unix:%s/%s", p->state.dir, STATE_SOCKET), false);
    for (const char *const *wish = conf_list(p->conf, "listen"); *wish; wish++)
        if (listen_one(p, *wish, err) < 0)
            return -1;

    const char *const *own = hosts_own(&p->arena);
    for (unsigned i = 0; i < p->start.listener_count; i++)
        hosts_of_listener(&p->start.hosts, &p->arena, p->start.listeners[i].text,
                          p->start.listeners[i].tls, own);
    return 0;
}

/* ---- the two programs ---- */

static int find_programs(struct prelude *p, struct err *err)
{
    p->atoll_fd = open("/proc/self/exe", O_PATH | O_CLOEXEC);
    if (p->atoll_fd < 0)
        return err_sys(err, "find this program in /proc");
    p->warden_fd = program_open(WARDEN_NAME, NULL, err);
    return p->warden_fd < 0 ? -1 : 0;
}

/* The descriptors have been placed: the numbers we knew mean something else now. */
static void prelude_forget(struct prelude *p)
{
    p->warden_fd = p->atoll_fd = p->start_fd = p->settings_fd = p->key_fd = p->roots_fd = -1;
    p->start.listener_count = 0;
    p->state = STATE_NONE;
}

static int become_warden(struct prelude *p, int argc, char **argv, struct err *err)
{
    static char numbers[WARDEN_ARGS][24];
    static char *words[WARDEN_ARGS + SERVE_ARGS_MAX + 1];
    const int64_t values[WARDEN_ARGS] = {
        0,
        WARDEN_LAYOUT,
        p->api_uid,
        p->api_uid,
        p->start.listener_count,
        settings_log_level(p->conf),
        settings_log_format(p->conf),
        conf_int(p->conf, "drain") + DRAIN_GRACE_MS,
        p->ids,
        conf_int(p->conf, "disks_size"),
    };
    int fds[PLACE_MAX] = { p->start_fd,      p->settings_fd,   p->atoll_fd, p->state.dir_fd,
                           p->state.lock_fd, p->state.data_fd, p->key_fd,   p->roots_fd };
    unsigned count = WARDEN_FD_LISTENERS - WARDEN_FD_START;

    if (argc - 1 > SERVE_ARGS_MAX)
        return err_set(err, ERR_LIMIT, "more than %d arguments", SERVE_ARGS_MAX);
    snprintf(numbers[0], sizeof(numbers[0]), "%s", WARDEN_NAME);
    for (int i = 1; i < WARDEN_ARGS; i++)
        snprintf(numbers[i], sizeof(numbers[i]), "%lld", (long long)values[i]);
    for (int i = 0; i < WARDEN_ARGS; i++)
        words[i] = numbers[i];
    for (int i = 1; i < argc; i++)
        words[WARDEN_ARGS + i - 1] = argv[i];
    for (unsigned i = 0; i < p->start.listener_count; i++)
        fds[count++] = p->listeners[i];
    int warden_fd = layout_place(fds, count, p->warden_fd);
    if (warden_fd < 0)
        return err_sys(err, "place descriptors");
    syscall(SYS_execveat, warden_fd, "", words, environ, AT_EMPTY_PATH);
    err_sys(err, "start %s", WARDEN_NAME);
    unlinkat(WARDEN_FD_STATE, STATE_SOCKET, 0);
    prelude_forget(p);
    return -1;
}

/* ---- the roles ---- */

/* What else the server does needs no namespace: without one there are just no sandboxes. */
static void go_rootless(struct prelude *p)
{
    struct err err = { 0 };

    p->ids = rootless_enter(&p->state.dir_fd, &err);
    if (p->ids == ROOTLESS_NONE)
        log_warn("no sandboxes can be made", kv_str("missing", err.msg),
                 kv_str("help", "atoll doctor"));
}

/*
 * Whom the egress process trusts besides the machine's own authorities. By a descriptor and not
 * over the api process, which is not trusted with where credentials go.
 */
static int open_roots(struct prelude *p, struct err *err)
{
    const char *path = conf_text(p->conf, "egress_authorities");
    bool said = path && path[0];
    struct stat st;

    p->roots_fd = open(said ? path : "/dev/null", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (p->roots_fd < 0)
        return err_sys(err, "egress_authorities %s", path);
    if (said && (fstat(p->roots_fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size == 0 ||
                 st.st_size > CONF_ROOTS_MAX))
        return err_set(err, ERR_INVALID, "egress_authorities %s: not a file of 1 to %d bytes", path,
                       CONF_ROOTS_MAX);
    return 0;
}

static int prepare(struct prelude *p, struct err *err)
{
    autobuf struct buf start = { 0 }, settings = { 0 };

    p->api_uid = geteuid() == 0 ? conf_int(p->conf, "uid_base") : -1;
    if (find_programs(p, err) < 0 || settings_pack(p->conf, &settings, err) < 0)
        return -1;
    if (state_open(&p->state, conf_text(p->conf, "state"), p->api_uid, err) < 0)
        return -1;
    bool new_store = conf_source(p->conf, "new_store", NULL) == CONF_FLAG;
    if (!(new_store && conf_bool(p->conf, "new_store")) && state_check_store(&p->state, err) < 0)
        return -1;
    p->start.state = p->state.dir;
    p->start.state_named = conf_source(p->conf, "state", NULL) != CONF_DEFAULT;
    p->start.owner_uid = geteuid();
    if (state_token(&p->state, p->start.admin_hash, err) < 0 ||
        state_egress_key(&p->state, &p->start.egress_key, &p->key_fd, err) < 0 ||
        open_roots(p, err) < 0 || listen_all(p, err) < 0)
        return -1;
    start_pack(&p->start, p->conf, &start);
    p->start_fd = sealed_make("atoll-start", buf_view(&start), err);
    p->settings_fd = p->start_fd < 0 ? -1 : sealed_make("atoll-settings", buf_view(&settings), err);
    explicit_bzero(settings.data, settings.len);
    if (p->settings_fd < 0)
        return -1;
    report_begin(p->state.dir, p->state.data_fd, p->api_uid);
    if (p->api_uid < 0)
        go_rootless(p);
    return 0;
}

static int fail(const struct err *err)
{
    fprintf(stderr, "atoll: %s\n", err->msg);
    return err_info(err->code)->exit;
}

int serve_main(struct conf *conf, int argc, char **argv)
{
    struct prelude p = { .conf = conf,
                         .state = STATE_NONE,
                         .ids = ROOTLESS_NONE,
                         .warden_fd = -1,
                         .atoll_fd = -1,
                         .start_fd = -1,
                         .settings_fd = -1,
                         .key_fd = -1,
                         .roots_fd = -1 };
    struct err err = { 0 };

    fill_stdio();
    umask(022);
    log_setup(settings_log_level(conf), settings_log_format(conf), "serve");
    raise_nofile();
    p.start.command = argv[0];
    if (prepare(&p, &err) == 0)
        become_warden(&p, argc, argv, &err); /* comes back only when it failed */
    if (p.start.listener_count && p.state.dir_fd >= 0)
        unlinkat(p.state.dir_fd, STATE_SOCKET, 0);
    prelude_free(&p);
    return fail(&err);
}

int resolve_main(struct conf *conf)
{
    autobuf struct buf settings = { 0 };
    struct err err = { 0 };
    int rc = settings_pack(conf, &settings, &err);

    conf_free(conf);
    if (rc < 0)
        return fail(&err);
    for (size_t at = 0; at < settings.len;) {
        ssize_t n = write(RESOLVE_FD_OUT, settings.data + at, settings.len - at);

        if (n < 0) {
            fprintf(stderr, "atoll: --resolve is for the warden's use\n");
            return 1;
        }
        at += (size_t)n;
    }
    return 0;
}
