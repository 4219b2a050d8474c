/*
 * Packing goes through the JSON writer and unpacking through the strict reader, although both ends
 * are ours: the reader of the reload's document is a process that stays up for months.
 */
#include "daemon/settings.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/json.h"
#include "base/limits.h"

/* linux/memfd.h; where vm.memfd_noexec is 2, nothing else is allowed */
#define MFD_NOEXEC_SEAL_ 8u
#define SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

/* ---- packing ---- */

static void put_conf(struct json_out *json, const struct conf *conf)
{
    autobuf struct buf packed = { 0 };

    conf_pack(conf, &packed);
    json_key(json, "conf");
    json_put_raw(json, buf_view(&packed));
}

void start_pack(const struct start *start, const struct conf *conf, struct buf *out)
{
    struct json_out json = json_to(out);
    char hash[SHA256_HEX_SIZE], key[2 * SEAL_KEY_SIZE + 1];

    hex_text(start->admin_hash, SHA256_SIZE, hash);
    hex_text(start->egress_key.bytes, SEAL_KEY_SIZE, key);
    json_open(&json, '{');
    json_kv_text(&json, "state", start->state);
    json_kv_text(&json, "command", start->command);
    json_kv_bool(&json, "state_named", start->state_named);
    json_kv_int(&json, "owner_uid", start->owner_uid);
    json_kv_text(&json, "admin_hash", hash);
    json_kv_text(&json, "egress_key", key);
    json_key(&json, "listeners");
    json_open(&json, '[');
    for (unsigned i = 0; i < start->listener_count; i++) {
        json_open(&json, '{');
        json_kv_text(&json, "text", start->listeners[i].text);
        json_kv_bool(&json, "tls", start->listeners[i].tls);
        json_close(&json, '}');
    }
    json_close(&json, ']');
    json_key(&json, "hosts");
    json_open(&json, '[');
    for (size_t i = 0; i < start->hosts.count; i++)
        json_put_str(&json, str_of(start->hosts.items[i]));
    json_close(&json, ']');
    put_conf(&json, conf);
    json_close(&json, '}');
}

/* A PEM file; *secret ones should not be everybody's to read. */
static int put_file(struct json_out *json, const char *key, const char *path, bool secret,
                    struct err *err)
{
    autoclose int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    autobuf struct buf text = { .max = TLS_FILE_MAX };
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(err, "%s: open %s", key, path);
    if (!S_ISREG(st.st_mode) || st.st_size > TLS_FILE_MAX)
        return err_set(err, ERR_INVALID, "%s: %s is not a file of at most %d bytes", key, path,
                       TLS_FILE_MAX);
    if (secret && st.st_mode & 007)
        log_warn("the TLS key can be read by every user", kv_str("file", path));
    char *room = buf_reserve(&text, (size_t)st.st_size);
    ssize_t len = room ? read(fd, room, (size_t)st.st_size) : 0;
    if (len < 0)
        return err_sys(err, "%s: read %s", key, path);
    struct str pem = { room, (size_t)len };
    if (!str_utf8(pem) || str_has_nul(pem))
        return err_set(err, ERR_INVALID, "%s: %s is not PEM text", key, path);
    json_kv_str(json, key, pem);
    explicit_bzero(text.data, text.cap);
    return 0;
}

int settings_pack(const struct conf *conf, struct buf *out, struct err *err)
{
    const char *cert = conf_text(conf, "tls_cert"), *key = conf_text(conf, "tls_key");
    struct json_out json = json_to(out);

    json_open(&json, '{');
    put_conf(&json, conf);
    if (cert[0] && put_file(&json, "tls_cert", cert, false, err) < 0)
        return -1;
    if (key[0] && put_file(&json, "tls_key", key, true, err) < 0)
        return -1;
    json_close(&json, '}');
    if (!buf_ok(out) || out->len > SETTINGS_MAX)
        return err_set(err, ERR_LIMIT, "the settings are larger than %d bytes", SETTINGS_MAX);
    return 0;
}

/* ---- unpacking ---- */

static const char *text_in(struct arena *arena, const struct json *obj, const char *key)
{
    struct str text = json_text(obj, key);

    return text.p ? arena_memdup0(arena, text.p, text.n) : "";
}

int start_unpack(struct start *out, struct arena *arena, struct str start, struct err *err)
{
    struct json *doc;
    struct start got = { 0 };

    if (json_parse(arena, start, &doc, err) < 0)
        return err_wrap(err, "what serve said at its start");
    got.state = text_in(arena, doc, "state");
    got.command = text_in(arena, doc, "command");
    got.state_named = json_true(doc, "state_named");
    got.owner_uid = (unsigned)json_num(doc, "owner_uid", UINT32_MAX);
    if (!hex_bytes(json_text(doc, "admin_hash"), got.admin_hash, SHA256_SIZE))
        return err_set(err, ERR_INVALID, "what serve said at its start: no admin_hash");
    if (!hex_bytes(json_text(doc, "egress_key"), got.egress_key.bytes, SEAL_KEY_SIZE))
        return err_set(err, ERR_INVALID, "what serve said at its start: no egress_key");
    json_each(one, json_get(doc, "listeners")) if (got.listener_count < LISTENERS_MAX)
        got.listeners[got.listener_count++] =
        (struct start_listener){ text_in(arena, one, "text"), json_true(one, "tls") };
    json_each(one, json_get(doc, "hosts")) if (one->type == JSON_STRING)
        hosts_add(&got.hosts, arena, arena_memdup0(arena, one->text.p, one->text.n));
    *out = got;
    return 0;
}

/* What was said at the start, with the reloadable part of what is said now; as conf_pack writes. */
static void merge(const struct json *first, const struct json *now, struct buf *out)
{
    struct json_out json = json_to(out);

    json_open(&json, '{');
    for (int from_now = 0; from_now < 2; from_now++)
        json_each(one, from_now ? now : first)
        {
            const struct conf_key *key = conf_find(one->key);

            if (!key || key->reload != (from_now == 1))
                continue;
            json_key_str(&json, one->key);
            json_put(&json, one);
        }
    json_close(&json, '}');
}

/* Names the settings that differ and that no reload applies. */
static void note_stale(struct settings *out, const struct json *first, const struct json *now)
{
    autobuf struct buf names = { .max = sizeof(out->stale) - 1 };

    for (const struct conf_key *key = conf_table; key->name; key++) {
        struct str before = json_text(json_get(first, key->name), "value");
        struct str after = json_text(json_get(now, key->name), "value");

        if (!key->reload && !str_eq(before, after))
            buf_printf(&names, "%s%s", names.len ? ", " : "", key->name);
    }
    snprintf(out->stale, sizeof(out->stale), "%.*s", STR_FMT(buf_view(&names)));
}

int settings_unpack(struct settings *out, struct arena *arena, struct str start,
                    struct str settings, struct err *err)
{
    autobuf struct buf merged = { 0 };
    struct json *first, *now;
    struct settings got = { 0 };

    if (json_parse(arena, start, &first, err) < 0 || json_parse(arena, settings, &now, err) < 0)
        return err_wrap(err, "settings");
    const struct json *first_conf = json_get(first, "conf"), *now_conf = json_get(now, "conf");
    if (!first_conf || !now_conf)
        return err_set(err, ERR_INVALID, "settings: no conf");
    merge(first_conf, now_conf, &merged);
    note_stale(&got, first_conf, now_conf);
    got.tls_cert = json_text(now, "tls_cert");
    got.tls_key = json_text(now, "tls_key");
    got.conf = conf_new();
    if (conf_unpack(got.conf, buf_view(&merged), err) < 0) {
        conf_free(got.conf);
        return -1;
    }
    *out = got;
    return 0;
}

/* ---- logging ---- */

enum log_level settings_log_level(const struct conf *conf)
{
    static const char *const names[] = { "debug", "info", "warn", "error" };

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strcmp(conf_text(conf, "log_level"), names[i]) == 0)
            return (enum log_level)i;
    return LOG_INFO;
}

enum log_format settings_log_format(const struct conf *conf)
{
    return strcmp(conf_text(conf, "log_format"), "json") == 0 ? LOG_JSON : LOG_TEXT;
}

/* ---- sealed memory ---- */

int sealed_make(const char *name, struct str text, struct err *err)
{
    autoclose int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL_);

    if (fd < 0 && errno == EINVAL) /* before Linux 6.3 */
        fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return err_sys(err, "memfd");
    for (size_t at = 0; at < text.n;) {
        ssize_t n = write(fd, text.p + at, text.n - at);

        if (n < 0)
            return err_sys(err, "write %zu bytes to memory", text.n);
        at += (size_t)n;
    }
    if (fcntl(fd, F_ADD_SEALS, SEALS) < 0)
        return err_sys(err, "seal");
    return take_fd(&fd);
}

int sealed_read(int fd, struct buf *out, struct err *err)
{
    int seals = fcntl(fd, F_GET_SEALS);
    struct stat st;

    if (seals < 0 || (seals & SEALS) != SEALS)
        return err_set(err, ERR_FORBIDDEN, "settings that are not sealed");
    if (fstat(fd, &st) < 0)
        return err_sys(err, "fstat");
    if (st.st_size > SETTINGS_MAX)
        return err_set(err, ERR_LIMIT, "settings of more than %d bytes", SETTINGS_MAX);
    char *room = buf_reserve(out, (size_t)st.st_size);
    if (!room)
        return err_set(err, ERR_LIMIT, "settings of more than %d bytes", SETTINGS_MAX);
    ssize_t len = pread(fd, room, (size_t)st.st_size, 0); /* other processes share the offset */
    if (len != st.st_size)
        return err_sys(err, "read settings");
    out->len += (size_t)len;
    return 0;
}
