/* The list of checks, and the few things every check needs. */
#include "host/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "host/own.h"

void probe_found(struct probe_result *out, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(out->found, sizeof(out->found), fmt, args);
    va_end(args);
}

void probe_say(struct probe_result *out, enum probe_state state, const char *lost, const char *fix)
{
    out->state = state;
    snprintf(out->lost, sizeof(out->lost), "%s", lost);
    snprintf(out->fix, sizeof(out->fix), "%s", fix);
}

const char *probe_state_name(enum probe_state state)
{
    static const char *const names[] = { "ok", "lost", "fail", "unknown" };

    return (unsigned)state < ARRAY_LEN(names) ? names[state] : "unknown";
}

void probe_json(struct json_out *json, const struct probe_result *results, size_t count,
                const char *at)
{
    bool fine = true;

    for (size_t i = 0; i < count; i++)
        fine &= results[i].state != PROBE_FAIL;
    json_open(json, '{');
    json_kv_bool(json, "ok", fine);
    if (at)
        json_kv_text(json, "at", at);
    json_key(json, "items");
    json_open(json, '[');
    for (size_t i = 0; i < count; i++) {
        const struct probe_result *result = &results[i];

        json_open(json, '{');
        json_kv_text(json, "name", result->name);
        json_kv_text(json, "state", probe_state_name(result->state));
        json_kv_text(json, "found", result->found);
        json_kv_text(json, "lost", result->lost[0] ? result->lost : NULL);
        json_kv_text(json, "fix", result->fix[0] ? result->fix : NULL);
        json_close(json, '}');
    }
    json_close(json, ']');
    json_close(json, '}');
}

/* ---- small files ---- */

bool host_line(const char *path, char *out, size_t size)
{
    autoclose int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? -1 : read(fd, out, size - 1);

    if (len < 0)
        return false;
    out[len] = 0;
    out[strcspn(out, "\n")] = 0;
    return true;
}

int64_t host_number(const char *path, int64_t otherwise)
{
    char text[64];
    uint64_t value;

    if (!host_line(path, text, sizeof(text)) || !str_to_u64(str_of(text), &value))
        return otherwise;
    return value > INT64_MAX ? INT64_MAX : (int64_t)value;
}

/* ---- mountinfo ---- */

/* "\040" and its kind. */
static void unescape(struct str text, char *out, size_t size)
{
    size_t at = 0;

    for (size_t i = 0; i < text.n && at + 1 < size; i++) {
        char c = text.p[i];

        if (c == '\\' && i + 3 < text.n) {
            c = (char)((text.p[i + 1] - '0') * 64 + (text.p[i + 2] - '0') * 8 + text.p[i + 3] -
                       '0');
            i += 3;
        }
        out[at++] = c;
    }
    out[at] = 0;
}

/* Fields 4 and 5 are root and point; after the lone "-" come type, source and options. */
bool host_mount_parse(struct str line, struct host_mount *out)
{
    struct str field = STR_NONE, rest = line;

    for (int i = 0; i < 5; i++) {
        field = str_cut(&rest, ' ');
        if (i == 3)
            unescape(field, out->root, sizeof(out->root));
    }
    unescape(field, out->point, sizeof(out->point));
    while (rest.n && !str_is(field, "-"))
        field = str_cut(&rest, ' ');
    if (!rest.n)
        return false;
    unescape(str_cut(&rest, ' '), out->type, sizeof(out->type));
    unescape(str_cut(&rest, ' '), out->source, sizeof(out->source));
    unescape(rest, out->options, sizeof(out->options));
    return true;
}

bool host_mounts(bool (*fn)(void *ctx, const struct host_mount *mount), void *ctx)
{
    FILE *file = fopen("/proc/self/mountinfo", "re");
    autofree struct host_mount *mount = xnew(struct host_mount);
    autofree char *line = NULL;
    size_t size = 0;
    ssize_t len;

    if (!file)
        return false;
    while ((len = getline(&line, &size, file)) > 0) {
        struct str text = { line, (size_t)len };

        if (text.p[text.n - 1] == '\n')
            text.n--;
        if (host_mount_parse(text, mount) && !fn(ctx, mount))
            break;
    }
    fclose(file);
    return true;
}

/* ---- children ---- */

/*
 * The child holds the other end of a pipe, so its end is seen whatever ends it. (A pidfd would do
 * as well, but it may be what is missing here.)
 */
static void wait_or_kill(pid_t pid, int pipe_fd, int ms)
{
    struct pollfd wait = { .fd = pipe_fd };
    int64_t until = clock_mono_ms() + ms, left = ms;

    while (left > 0 && poll(&wait, 1, (int)left) <= 0)
        left = until - clock_mono_ms();
    if (left <= 0)
        kill(pid, SIGKILL); /* ours to reap, so the number is still its own */
}

int probe_child(int (*fn)(const void *arg), const void *arg, int ms)
{
    autoclose int ours = -1, theirs = -1;
    pid_t parent = getpid();
    int ends[2], status;

    fflush(NULL);
    if (pipe2(ends, O_CLOEXEC) < 0)
        return errno;
    ours = ends[0];
    theirs = ends[1];
    pid_t pid = fork();
    if (pid < 0)
        return errno;
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        if (getppid() != parent)
            _exit(1);
        int failed = fn(arg);
        _exit(failed < 0 || failed > 254 ? 255 : failed);
    }
    close(take_fd(&theirs));
    wait_or_kill(pid, ours, ms);
    if (waitpid(pid, &status, 0) < 0 || !WIFEXITED(status) || WEXITSTATUS(status) == 255)
        return -1;
    return WEXITSTATUS(status);
}

/* ---- all of them ---- */

static void look_around(struct probe_world *world, const char *state_dir)
{
    struct stat st;

    *world = (struct probe_world){ .state_dir = state_dir, .root = geteuid() == 0 };
    snprintf(world->near, sizeof(world->near), "%s", state_dir);
    world->exists = stat(state_dir, &st) == 0 && S_ISDIR(st.st_mode);
    world->writable = world->exists && faccessat(AT_FDCWD, state_dir, W_OK, AT_EACCESS) == 0;
    while (world->near[1] && stat(world->near, &st) < 0) {
        char *slash = strrchr(world->near, '/');

        if (!slash)
            break;
        slash[slash == world->near] = 0;
    }
}

size_t host_probe(const char *state_dir, struct probe_result *out, size_t max)
{
    static const struct probe_check *const tables[] = { probe_kernel_checks, probe_mount_checks,
                                                        probe_machine_checks };
    autofree struct probe_world *world = xnew(struct probe_world);
    size_t count = 0;

    look_around(world, state_dir);
    for (size_t t = 0; t < ARRAY_LEN(tables); t++)
        for (const struct probe_check *check = tables[t]; check->name && count < max; check++) {
            out[count] = (struct probe_result){ .name = check->name };
            check->run(world, &out[count++]);
        }
    return count;
}
