/*
 * The process that serves. What it needs was opened for it (wire/layout.h); it reads the settings,
 * says hello to the warden, enters the jail, and only then touches anything that others wrote: the
 * store, and requests.
 *
 *   settings · hello · jail · store ── boot job (writer: admin token, live tokens, login link)
 *                                          └─▶ listen · READY · requests …  STOP ─▶ drain · close
 *
 * The listeners are watched only when the boot job is on disk, so the first answer is already a
 * full one; clients wait in the backlog meanwhile. A failure before READY that the next try would
 * meet again (a corrupt store, a jail that cannot be made) ends with API_EXIT_FINAL, and the warden
 * gives up at once instead of trying for a while.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include <openssl/ssl.h>

#include "api/api.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/metric.h"
#include "base/seal.h"
#include "base/signals.h"
#include "box/boxes.h"
#include "box/quota.h"
#include "daemon/daemon.h"
#include "daemon/jail.h"
#include "daemon/machine.h"
#include "daemon/settings.h"
#include "gate/gate.h"
#include "http/assets.h"
#include "hub/hub.h"
#include "link/links.h"
#include "net/tls.h"
#include "store/beneath.h"
#include "wire/wire.h"

METRIC_HISTOGRAM(loop_lag, "atoll_loop_lag_seconds",
                 "How late the event loop came to a timer: what a request may have waited", 0.001,
                 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5);
METRIC_COUNTER(loop_slow, "atoll_loop_slow_total",
               "Callbacks that held up the event loop for 50 ms or longer");
METRIC_COUNTER(restarts_total, "atoll_api_restarts_total",
               "Processes that served before this one, since the server was started");
METRIC_COUNTER(swept_total, "atoll_store_swept_rows_total", "Rows removed because they were old");
METRIC_COUNTER(reloads_total, "atoll_reloads_total", "Settings taken again", "outcome", "ok",
               "refused");

/* Everything of the process; there is one. */
static struct server {
    struct arena start_arena;
    struct buf start_text; /* owned: the document `start` points into */
    struct start start;
    uint32_t readies; /* api processes before this one that were ready */

    /* replaced together by a reload */
    struct arena arena;
    struct buf text;
    struct settings settings;
    struct hosts hosts;

    struct loop *loop;
    struct store *store;
    struct bus *bus;
    struct auth *auth;
    struct boxes *boxes;
    struct boxes_machine machine;
    struct links *links;
    struct gate *gate;
    struct hub *hub;
    struct api api;
    struct vault_keys keys; /* of the sealed values in the store */
    struct http_server *http;
    struct tls *tls; /* NULL without https:// listeners */

    struct watch link;
    struct timer sweep, lag;
    struct store_job boot, sweep_job;
    char login_code[TOKEN_TEXT_SIZE];
    int sweep_rows;
    bool stopping;
    int exit_status;
} server;

extern const struct asset web_assets[]; /* generated from web/ */

static const char *setting(const char *name)
{
    return conf_text(server.settings.conf, name);
}

static int64_t number(const char *name)
{
    return conf_int(server.settings.conf, name);
}

/* ---- settings ---- */

static int read_start(struct err *err)
{
    if (sealed_read(API_FD_START, &server.start_text, err) < 0)
        return -1;
    close(API_FD_START);
    return start_unpack(&server.start, &server.start_arena, buf_view(&server.start_text), err);
}

/* What a reload replaces; the caller frees the loser. */
struct loaded {
    struct arena arena;
    struct buf text;
    struct settings settings;
    struct hosts hosts;
};

static void loaded_free(struct loaded *loaded)
{
    conf_free(loaded->settings.conf);
    arena_free(&loaded->arena);
    if (loaded->text.data)
        explicit_bzero(loaded->text.data, loaded->text.cap); /* the TLS key */
    buf_free(&loaded->text);
}

static int load(int fd, struct loaded *out, struct err *err)
{
    if (sealed_read(fd, &out->text, err) < 0 ||
        settings_unpack(&out->settings, &out->arena, buf_view(&server.start_text),
                        buf_view(&out->text), err) < 0)
        return -1;
    out->hosts = server.start.hosts;
    for (const char *const *one = conf_list(out->settings.conf, "host"); *one; one++)
        hosts_add(&out->hosts, &out->arena, *one);
    return 0;
}

/* Makes them the settings; what was there goes to *loaded. */
static void swap_in(struct loaded *loaded)
{
    struct loaded old = { server.arena, server.text, server.settings, server.hosts };

    server.arena = loaded->arena;
    server.text = loaded->text;
    server.settings = loaded->settings;
    server.hosts = loaded->hosts;
    server.api.options.hosts = server.hosts.items;
    *loaded = old;
}

/*
 * Whom the server belongs to, as SO_PEERCRED says it to us. An ordinary user is 0 in the namespace
 * that the server may have entered (daemon/rootless.c); there the number that the user has outside
 * is one of a sandbox.
 */
static unsigned own_uid(void)
{
    return server.start.owner_uid == 0 ? 0 : geteuid();
}

static struct auth_options auth_options(void)
{
    return (struct auth_options){ .open = strcmp(setting("auth"), "open") == 0,
                                  .owner_uid = own_uid(),
                                  .rate_per_second = number("rate_per_second"),
                                  .rate_burst = number("rate_burst"),
                                  .store = server.store };
}

/* What of the settings lives elsewhere; at the start and after a reload. */
static void apply(void)
{
    log_setup(settings_log_level(server.settings.conf), settings_log_format(server.settings.conf),
              "api");
    store_keep_events(number("event_keep"));
}

/* What of them is told to whoever asks for limits. */
static void tell_limits(void)
{
    struct api_options *options = &server.api.options;

    options->sandboxes_max = number("sandboxes_max");
    options->rate_per_second = number("rate_per_second");
    options->rate_burst = number("rate_burst");
    options->event_keep_ms = number("event_keep");
    options->no_metrics = !conf_bool(server.settings.conf, "metrics_enabled");
    options->agentbox_memory = number("agentbox_memory");
    options->agentbox_cpu_percent = number("agentbox_cpu_percent");
    options->agentbox_idle_ms = number("agentbox_idle");
    options->agentbox_root = strcmp(setting("agentbox_user"), "root") == 0;
}

/* ---- the link ---- */

static void tell(enum wire_verb verb, uint32_t request, const struct err *err)
{
    struct wire_msg msg = { .verb = (uint16_t)verb, .number = request };

    if (verb == WIRE_HELLO) {
        msg.hello.role = WIRE_ROLE_API;
        msg.hello.pid = (uint32_t)getpid();
    }
    if (err) {
        msg.status = EINVAL;
        snprintf(msg.text, sizeof(msg.text), "%.*s", (int)sizeof(msg.text) - 1, err->msg);
    }
    if (wire_send(API_FD_LINK, &msg, NULL, 0) < 0)
        log_error("cannot tell the warden", kv_str("error", strerrordesc_np(errno)));
}

/* Hello there and back; the warden says how many were ready before us. */
static int greet(struct err *err)
{
    struct pollfd wait = { .fd = API_FD_LINK, .events = POLLIN };
    struct wire_msg msg;
    int fds[WIRE_FDS_MAX];
    unsigned count;

    tell(WIRE_HELLO, 1, NULL);
    if (poll(&wait, 1, WARDEN_HELLO_MS) != 1 || wire_recv(API_FD_LINK, &msg, fds, &count) != 1 ||
        msg.verb != WIRE_HELLO || count != 0)
        return err_set(err, ERR_INTERNAL, "the warden does not answer; `atoll serve` starts both");
    server.readies = msg.hello.readies;
    metric_add(&restarts_total, 0, server.readies);
    return 0;
}

/* What the box room asks of the warden. */
static int ask_warden(void *ctx, const struct wire_msg *msg)
{
    (void)ctx;
    return wire_send(API_FD_LINK, msg, NULL, 0);
}

static void stop(void);

static int reload(int fd, struct err *err)
{
    struct loaded loaded = { 0 };
    int rc = load(fd, &loaded, err);

    if (rc == 0 && server.tls)
        rc = tls_reload(server.tls, loaded.settings.tls_cert, loaded.settings.tls_key, err);
    if (rc == 0) {
        struct auth_options options;

        swap_in(&loaded);
        apply();
        tell_limits();
        options = auth_options();
        auth_reload(server.auth, &options);
        if (server.settings.stale[0])
            log_warn("changed settings that need a restart",
                     kv_str("names", server.settings.stale));
    }
    loaded_free(&loaded);
    return rc;
}

static void on_reload(const struct wire_msg *msg, const int *fds, unsigned count)
{
    struct err err = { 0 };
    int rc =
        count == 1 ? reload(fds[0], &err) : err_set(&err, ERR_INVALID, "a reload without settings");

    metric_add(&reloads_total, rc < 0, 1);
    tell(WIRE_RELOADED, msg->number, rc < 0 ? &err : NULL);
}

static void on_link(struct watch *watch, uint32_t events)
{
    struct wire_msg msg;
    int fds[WIRE_FDS_MAX];
    unsigned count;
    int got = wire_recv(watch->fd, &msg, fds, &count);

    (void)events;
    if (got < 0 && errno == EAGAIN)
        return;
    if (got <= 0) {
        log_error("the warden is gone");
        loop_unwatch(server.loop, watch);
        stop();
        return;
    }
    if (msg.verb == WIRE_PING)
        tell(WIRE_PONG, msg.number, NULL);
    else if (msg.verb == WIRE_STOP)
        stop();
    else if (msg.verb == WIRE_RELOAD)
        on_reload(&msg, fds, count);
    else if (msg.verb >= WIRE_BOX_CREATE && msg.verb < WIRE_EGRESS_PEER && server.boxes) {
        boxes_heard(server.boxes, &msg, fds, count);
        count = 0;
    } else if (msg.verb == WIRE_EGRESS_PEER && count == 1 && server.gate) {
        gate_peer(server.gate, fds[0]);
        count = 0;
    }
    for (unsigned i = 0; i < count; i++)
        close(fds[i]);
}

/* ---- housekeeping ---- */

#define LAG_EVERY_MS 1000
#define LAG_WARN_MS 1000
#define SLOW_MS 50
#define SLOW_WARN_MS 200
#define SWEEP_EVERY_MS 60000
#define SWEEP_AGAIN_MS 50

static void on_lag(struct timer *timer)
{
    int64_t late = clock_mono_ms() - timer->due_ms;

    metric_observe_us(&loop_lag, late > 0 ? late * 1000 : 0);
    if (late > LAG_WARN_MS)
        log_warn("the event loop was held up", kv_int("ms", late));
    timer_set(server.loop, timer, LAG_EVERY_MS);
}

extern const char __executable_start[];

/* `at` is for addr2line -e atoll-server: it names the callback. */
static void on_slow(void *ctx, const void *held, int64_t ms)
{
    (void)ctx;
    metric_add(&loop_slow, 0, 1);
    if (ms >= SLOW_WARN_MS)
        log_warn("one callback held up the event loop", kv_int("ms", ms),
                 kv_int("at", (const char *)held - __executable_start));
}

static int sweep_run(struct store_job *job, struct db *db, struct err *err)
{
    (void)job;
    server.sweep_rows = store_sweep(db, err);
    return server.sweep_rows < 0 ? -1 : 0;
}

static void sweep_done(struct store_job *job)
{
    if (job->rc < 0)
        log_warn("old rows stay for now", kv_str("error", job->err.msg));
    else
        metric_add(&swept_total, 0, server.sweep_rows);
    if (!server.stopping)
        timer_set(server.loop, &server.sweep,
                  job->rc == 0 && server.sweep_rows >= STORE_SWEEP_ROWS ? SWEEP_AGAIN_MS
                                                                        : SWEEP_EVERY_MS);
}

static void on_sweep(struct timer *timer)
{
    (void)timer;
    server.sweep_job = (struct store_job){ .run = sweep_run, .done = sweep_done };
    store_write(server.store, &server.sweep_job);
}

/* ---- the end ---- */

static void drained(void *ctx)
{
    (void)ctx;
    loop_stop(server.loop);
}

static void stop(void)
{
    if (server.stopping)
        return;
    server.stopping = true;
    api_drain(&server.api);
    timer_cancel(server.loop, &server.sweep);
    if (server.hub)
        hub_drain(server.hub);
    if (server.boxes) {
        unsigned living = boxes_living(server.boxes);

        if (living)
            log_info("sandboxes go on without the server: the next start takes them over, and "
                     "`atoll rm` ends them",
                     kv_int("sandboxes", living));
        boxes_drain(server.boxes);
    }
    if (server.links)
        links_drain(server.links);
    if (server.http)
        http_server_drain(server.http, number("drain"), drained, NULL);
    else
        loop_stop(server.loop);
}

static void server_free(void)
{
    struct loaded last = { server.arena, server.text, server.settings, server.hosts };

    http_server_free(server.http);
    store_close(server.store); /* what was acknowledged is on disk already; this tidies up */
    boxes_free(server.boxes);
    links_free(server.links);
    gate_free(server.gate);
    hub_free(server.hub);
    if (server.api.own)
        api_free(&server.api);
    bus_free(server.bus);
    auth_free(server.auth);
    tls_free(server.tls);
    loop_free(server.loop);
    loaded_free(&last);
    explicit_bzero(&server.keys, sizeof(server.keys));
    arena_free(&server.start_arena);
    buf_free(&server.start_text);
}

/* ---- serving ---- */

/* The first address that a browser can use, or NULL. */
static const struct start_listener *browser_listener(void)
{
    for (unsigned i = 0; i < server.start.listener_count; i++)
        if (!str_starts(str_of(server.start.listeners[i].text), STR("unix:")))
            return &server.start.listeners[i];
    return NULL;
}

/* Where a browser on this machine finds us; NULL when only a Unix socket is open. */
static const char *base_url(void)
{
    static char url[640]; /* the listeners stay as they are until we end */
    const struct start_listener *listener = browser_listener();

    if (!listener)
        return NULL;
    struct str text = str_of(listener->text);
    struct str any4 = STR("0.0.0.0:"), any6 = STR("[::]:");
    const char *host = str_starts(text, any4)   ? "127.0.0.1:"
                       : str_starts(text, any6) ? "[::1]:"
                                                : "";

    text = str_from(text, str_starts(text, any4) ? any4.n : str_starts(text, any6) ? any6.n : 0);
    snprintf(url, sizeof(url), "%s://%s%.*s", listener->tls ? "https" : "http", host,
             STR_FMT(text));
    return url;
}

/* A word for the shell. */
static void put_word(struct buf *out, const char *word)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                "/._-+:@%,=";

    if (strspn(word, plain) == strlen(word)) {
        buf_puts(out, word);
        return;
    }
    buf_putc(out, '\'');
    for (; *word; word++)
        *word == '\'' ? buf_puts(out, "'\\''") : buf_putc(out, *word);
    buf_putc(out, '\'');
}

/* A command that works as it stands, in the directory where the server was started. */
static void put_hint(struct buf *out, const char *command)
{
    buf_puts(out, "  ");
    put_word(out, server.start.command);
    buf_printf(out, " %s", command);
    if (server.start.state_named) {
        buf_puts(out, " --state ");
        put_word(out, server.start.state);
    }
    buf_putc(out, '\n');
}

/* As others reach a listener that takes every address of this machine; NULL: it is not one. */
static const char *elsewhere(const struct start_listener *listener)
{
    static const char *const here[] = { "localhost:", "127.", "[::1]:" };
    struct str text = str_of(listener->text);

    if (!str_starts(text, STR("0.0.0.0:")) && !str_starts(text, STR("[::]:")))
        return NULL;
    for (size_t i = 0; i < server.start.hosts.count; i++) {
        bool local = false;

        for (size_t at = 0; at < ARRAY_LEN(here); at++)
            local |= str_starts(str_of(server.start.hosts.items[i]), str_of(here[at]));
        if (!local)
            return server.start.hosts.items[i];
    }
    return NULL;
}

static void announce(void)
{
    const struct start_listener *listener = browser_listener();
    autobuf struct buf out = { 0 };

    if (listener) {
        buf_printf(&out, "Dashboard (the link works once, for %lld minutes):\n  %s/#login=%s\n",
                   LOGIN_LINK_MS / 60000, server.api.options.base_url, server.login_code);
        if (elsewhere(listener))
            buf_printf(&out, "or, from another machine:\n  %s://%s/#login=%s\n",
                       listener->tls ? "https" : "http", elsewhere(listener), server.login_code);
    }
    buf_puts(&out, "Try:\n");
    put_hint(&out, "health");
    put_hint(&out, "event tail");
    for (size_t at = 0; at < out.len;) {
        ssize_t n = write(1, out.data + at, out.len - at);

        if (n < 0)
            break; /* nobody reads it; the command line can make another link */
        at += (size_t)n;
    }
    explicit_bzero(server.login_code, sizeof(server.login_code));
}

static int listen_all(struct err *err)
{
    for (unsigned i = 0; i < server.start.listener_count; i++) {
        const struct start_listener *one = &server.start.listeners[i];

        if (http_server_listen(server.http, API_FD_LISTENERS + (int)i, one->tls ? server.tls : NULL,
                               err) < 0)
            return err_wrap(err, "%s", one->text);
        log_info("listening", kv_str("on", one->text), kv_int("tls", one->tls));
    }
    return 0;
}

/* Would another try end the same way? */
static int status_of(const struct err *err)
{
    return err->code == ERR_NO_SPACE || err->code == ERR_UNAVAILABLE || err->code == ERR_CONFLICT ||
                   err->code == ERR_TIMEOUT
               ? 1
               : API_EXIT_FINAL;
}

static void give_up(const struct err *err)
{
    log_error("cannot serve", kv_str("error", err->msg));
    server.exit_status = status_of(err);
    loop_stop(server.loop);
}

static int start_serving(struct err *err)
{
    struct http_app app = api_app(&server.api);
    const struct http_options options = {
        .head_timeout_ms = number("head_timeout"),
        .keepalive_ms = number("keepalive"),
        .write_stall_ms = number("write_stall"),
        .conns_max = (unsigned)number("conns_max"),
        .conns_per_peer_max = (unsigned)number("conns_per_peer_max"),
    };

    if (http_server_new(&server.http, server.loop, &app, &options, err) < 0)
        return -1;
    return listen_all(err);
}

/* ---- boot: inside the store, then ready ---- */

static int boot_run(struct store_job *job, struct db *db, struct err *err)
{
    struct token_row admin;

    (void)job;
    if (token_bootstrap(db, server.start.admin_hash, &admin, err) < 0)
        return err_wrap(err, "the admin token");
    if (auth_load(server.auth, db, err) < 0)
        return err_wrap(err, "read the tokens");
    if (boxes_load(server.boxes, db, err) < 0)
        return err_wrap(err, "read the sandboxes");
    if (api_boot(db, err) < 0)
        return err_wrap(err, "operations");
    if (links_load(server.links, db, err) < 0 || gate_load(server.gate, db, err) < 0 ||
        hub_load(server.hub, db, err) < 0)
        return -1;
    if (server.readies == 0 &&
        login_link(db, TENANT_DEFAULT, ROLE_ADMIN, server.login_code, err) < 0)
        return err_wrap(err, "the login link");
    return 0;
}

/* The store was read, and what runs was taken over. */
static void adopted(void *ctx)
{
    struct err err = { 0 };

    (void)ctx;
    if (start_serving(&err) < 0) {
        give_up(&err);
        return;
    }
    timer_set(server.loop, &server.lag, LAG_EVERY_MS);
    timer_set(server.loop, &server.sweep, SWEEP_AGAIN_MS);
    links_start(server.links);
    hub_start(server.hub);
    tell(WIRE_READY, 2, NULL);
    log_info("serving", kv_str("version", ATOLL_VERSION), kv_str("state", server.start.state),
             kv_int("uid", getuid()));
    if (strcmp(setting("auth"), "open") == 0)
        log_warn("auth = open: everybody who can reach a listener is admin");
    if (conf_bool(server.settings.conf, "insecure"))
        log_warn("insecure: whoever is on the way to a listener without TLS can read tokens");
    if (server.readies == 0)
        announce();
}

static void boot_done(struct store_job *job)
{
    if (job->rc < 0) {
        give_up(&job->err);
        return;
    }
    gate_start(server.gate);
    boxes_start(server.boxes, adopted, NULL);
}

static void on_event(void *ctx, const struct event *event)
{
    (void)ctx;
    if (server.boxes)
        quota_tenant(server.boxes, event->tenant);
    if (server.gate)
        gate_heard(server.gate, event); /* what is new is guarded before anybody knows of it */
    if (server.hub)
        hub_heard(server.hub, event);
    bus_publish(server.bus, event);
}

/* Where the output of commands goes: a directory below the data directory, which we are in. */
static int open_spool(const char *name, struct err *err)
{
    if (mkdir(name, 0700) < 0 && errno != EEXIST)
        return err_sys(err, "make the directory of outputs");
    int fd = open(name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? err_sys(err, "open the directory of outputs") : fd;
}

static bool may_lose(const char *feature)
{
    const char *const *one = conf_list(server.settings.conf, "allow_degraded");

    while (*one && strcmp(*one, feature) != 0)
        one++;
    return *one != NULL;
}

static int build_boxes(struct err *err)
{
    int spool = open_spool(STATE_SPOOL, err);

    if (spool < 0)
        return -1;
    server.boxes =
        boxes_new(&(struct boxes_options){ .loop = server.loop,
                                           .store = server.store,
                                           .spool_dir = spool,
                                           .sandboxes_max = (unsigned)number("sandboxes_max"),
                                           .degraded = may_lose("cgroups"),
                                           .aside_keep_ms = number("disks_aside_keep"),
                                           .machine = server.machine,
                                           .pool_default = (unsigned)number("pool_default"),
                                           .send = ask_warden });
    return 0;
}

static int build_links(struct err *err)
{
    int spool = open_spool(STATE_LINK_SPOOL, err);

    if (spool < 0)
        return -1;
    server.links = links_new(
        &(struct links_options){ .loop = server.loop, .store = server.store, .spool_dir = spool });
    return 0;
}

/* Where we listen, which no rule opens; an address that means all of them is every one's anyway. */
static void own_listeners(struct egress_config *config)
{
    for (unsigned i = 0; i < server.start.listener_count; i++) {
        struct egress_addr *own = &config->own[config->own_count];
        struct host host;
        uint16_t port;

        if (config->own_count == EGRESS_OWN_MAX ||
            host_port_parse(str_of(server.start.listeners[i].text), 0, &host, &port, NULL) < 0 ||
            host.kind != HOST_ADDR)
            continue;
        *own = (struct egress_addr){ .family = host.addr.family, .port = port };
        memcpy(own->bytes, host.addr.bytes, sizeof(own->bytes));
        config->own_count++;
    }
}

_Static_assert(CONF_RESOLVERS_MAX == EGRESS_RESOLVERS, "all of the setting can be said");

/* Whom the egress process asks for names; checked when the settings were read. */
static int resolvers(struct egress_config *config, struct err *err)
{
    const char *const *list = conf_list(server.settings.conf, "egress_resolver");
    struct host host;
    uint16_t port;

    for (size_t i = 0; i < EGRESS_RESOLVERS && list[i]; i++) {
        if (conf_resolver_parse(list[i], &host, &port, err) < 0)
            return -1;
        config->resolvers[i] = (struct egress_addr){ .family = host.addr.family, .port = port };
        memcpy(config->resolvers[i].bytes, host.addr.bytes, sizeof(host.addr.bytes));
    }
    return 0;
}

static int build_gate(struct err *err)
{
    struct gate_options options = { .loop = server.loop,
                                    .store = server.store,
                                    .boxes = server.boxes,
                                    .expired = hub_expired,
                                    .hub = api_inside,
                                    .hub_ctx = &server.api };

    own_listeners(&options.config);
    options.config.answer_ms = (uint32_t)number("egress_answer_timeout");
    options.config.stream_ms = (uint32_t)number("egress_stream_timeout");
    if (resolvers(&options.config, err) < 0)
        return -1;
    server.gate = gate_new(&options);
    return 0;
}

static int build_hub(struct err *err)
{
    const char *filter = setting("hub_url_filter");
    const struct hub_options options = {
        .loop = server.loop,
        .store = server.store,
        .message_rate = number("hub_message_rate"),
        .heartbeat_rate = number("hub_heartbeat_rate"),
        .stale_ms = number("hub_stale"),
        .keep_ms = number("hub_message_keep"),
        .filter = strcmp(filter, "all") == 0   ? HUB_FILTER_ALL
                  : strcmp(filter, "off") == 0 ? HUB_FILTER_OFF
                                               : HUB_FILTER_MESSAGES,
        .url_allow = conf_list(server.settings.conf, "hub_url_allow"),
        .url_schemes = conf_list(server.settings.conf, "hub_url_schemes"),
    };

    return hub_new(&server.hub, &options, err);
}

/* The key of the sealed values; made by the first start that has none. */
static int load_key(struct err *err)
{
    autoclose int dir = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (dir < 0)
        return err_sys(err, "open the data directory");
    server.keys.egress = server.start.egress_key;
    return seal_key_load(&server.keys.own, dir, STATE_KEY, err);
}

/* From the jail on: everything that holds what others wrote. */
static int build(struct err *err)
{
    const struct store_options store = { .path = STATE_DB,
                                         .readers = (unsigned)number("readers"),
                                         .throw_away =
                                             conf_bool(server.settings.conf, "throw_away"),
                                         .on_event = on_event };
    server.link = (struct watch){ .fd = API_FD_LINK, .events = EPOLLIN, .fn = on_link };
    server.lag.fn = on_lag;
    server.sweep.fn = on_sweep;
    if (loop_new(&server.loop, err) < 0 || loop_watch(server.loop, &server.link, err) < 0)
        return -1;
    if (store_open(&server.store, server.loop, &store, err) < 0)
        return err_wrap(err, "the store");
    loop_on_slow(server.loop, SLOW_MS, on_slow, NULL);
    if (bus_new(&server.bus, server.loop, server.store, err) < 0)
        return -1;
    struct auth_options auth = auth_options();
    server.auth = auth_new(server.loop, &auth);
    if (build_boxes(err) < 0 || build_links(err) < 0 || load_key(err) < 0 || build_gate(err) < 0 ||
        build_hub(err) < 0)
        return -1;
    server.api = (struct api){ .loop = server.loop,
                               .store = server.store,
                               .bus = server.bus,
                               .auth = server.auth,
                               .boxes = server.boxes,
                               .links = server.links,
                               .gate = server.gate,
                               .hub = server.hub,
                               .started_ms = clock_wall_ms(),
                               .options = { .hosts = server.hosts.items,
                                            .version = ATOLL_VERSION,
                                            .base_url = base_url(),
                                            .data_dir = ".",
                                            .keys = &server.keys,
                                            .assets = web_assets } };
    tell_limits();
    if (api_init(&server.api, err) < 0)
        return -1;
    server.boot = (struct store_job){ .run = boot_run, .done = boot_done };
    store_write(server.store, &server.boot);
    return 0;
}

/* Before the jail: what needs files of the system, and nothing that a peer wrote. */
static int prepare(struct err *err)
{
    struct loaded loaded = { 0 };

    if (read_start(err) < 0)
        return -1;
    if (load(API_FD_SETTINGS, &loaded, err) < 0) {
        loaded_free(&loaded);
        return -1;
    }
    swap_in(&loaded);
    close(API_FD_SETTINGS);
    log_tap(server_log_keep);
    apply();
    OPENSSL_init_ssl(0, NULL); /* reads the system's openssl.cnf */
    if (server.settings.tls_cert.n &&
        tls_new(&server.tls, server.settings.tls_cert, server.settings.tls_key, err) < 0)
        return err_wrap(err, "tls_cert");
    if (fchdir(API_FD_DATA) < 0)
        return err_sys(err, "enter the data directory");
    store_beneath_cwd();
    machine_measure(&server.machine, server.settings.conf);
    return greet(err);
}

static int enter_jail(struct err *err)
{
    const struct jail jail = { .data_fd = API_FD_DATA,
                               .allow_degraded =
                                   conf_list(server.settings.conf, "allow_degraded") };
    int lost = jail_enter(&jail, err);

    if (lost >= 0)
        mem_untraced();
    return lost < 0 ? -1 : 0;
}

/* Nothing that we were given may reach another program, should there ever be one. */
static void close_on_exec(void)
{
    for (int fd = API_FD_LINK; fd < API_FD_LISTENERS + LISTENERS_MAX; fd++)
        fcntl(fd, F_SETFD, FD_CLOEXEC);
}

int api_main(void)
{
    struct err err = { 0 };

    prctl(PR_SET_NAME, "atoll-api", 0, 0, 0);
    log_setup(LOG_INFO, LOG_TEXT, "api");
    if (fcntl(API_FD_LINK, F_GETFD) < 0 || fcntl(API_FD_START, F_GETFD) < 0) {
        fprintf(stderr, "atoll api is a part of the server; start it with `atoll serve`\n");
        return 64;
    }
    close_on_exec();
    signals_block();
    if (prepare(&err) < 0 || enter_jail(&err) < 0 || build(&err) < 0) {
        log_error("cannot serve", kv_str("error", err.msg));
        server.exit_status = status_of(&err);
    } else {
        loop_run(server.loop);
    }
    server_free();
    return server.exit_status;
}
