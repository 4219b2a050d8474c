/* Read from /proc and the like; what cannot be read is 0 or empty. */
#include "agent/facts.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/json.h"
#include "base/mem.h"

#define MANIFEST_MAX 65536 /* bytes of it that are read */

static size_t read_file(const char *path, char *out, size_t size)
{
    autoclose int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t got = fd < 0 ? -1 : read(fd, out, size - 1);

    out[got > 0 ? got : 0] = 0;
    return got > 0 ? (size_t)got : 0;
}

static void read_os(char out[256])
{
    char text[4096];
    static const char key[] = "PRETTY_NAME=";

    read_file("/etc/os-release", text, sizeof(text));
    const char *at = strstr(text, key);
    if (!at)
        return;
    at += sizeof(key) - 1;
    at += *at == '"';
    size_t len = strcspn(at, "\"\n");
    snprintf(out, 256, "%.*s", (int)MIN(len, (size_t)255), at);
}

static void read_disk(int64_t *total, int64_t *used)
{
    struct statvfs fs;

    if (statvfs("/", &fs) < 0)
        return;
    *total = (int64_t)(fs.f_blocks * fs.f_frsize);
    *used = *total - (int64_t)(fs.f_bfree * fs.f_frsize);
}

static int64_t kilobytes(const char *text, const char *key)
{
    const char *at = strstr(text, key);
    long long value = 0;

    return at && sscanf(at + strlen(key), " %lld", &value) == 1 ? value * 1024 : 0;
}

static void read_memory(int64_t *total, int64_t *used)
{
    char text[4096];

    read_file("/proc/meminfo", text, sizeof(text));
    *total = kilobytes(text, "MemTotal:");
    *used = *total - kilobytes(text, "MemAvailable:");
}

void facts_read(struct facts *out)
{
    struct utsname name;
    int64_t used;

    *out = (struct facts){ 0 };
    gethostname(out->hostname, sizeof(out->hostname) - 1);
    if (uname(&name) == 0)
        snprintf(out->kernel, sizeof(out->kernel), "%s", name.release);
    read_os(out->os);
    out->cpu_cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    read_memory(&out->memory_total, &used);
    read_disk(&out->disk_total, &used);
}

const struct json *facts_frameworks(struct arena *arena)
{
    const char *home = getenv("HOME");
    char path[4096], *text = arena_alloc(arena, MANIFEST_MAX);
    struct json *json;

    if (!home ||
        snprintf(path, sizeof(path), "%s/.loadout-manifest.json", home) >= (int)sizeof(path))
        return NULL;
    size_t len = read_file(path, text, MANIFEST_MAX);
    if (!len || json_parse(arena, (struct str){ text, len }, &json, &(struct err){ 0 }) < 0)
        return NULL;
    const struct json *list = json_get(json, "aiwg_frameworks");
    return list && list->type == JSON_ARRAY ? list : NULL;
}

static double cpu_percent(void)
{
    static unsigned long long last_all, last_idle;
    unsigned long long n[8] = { 0 }, all = 0;
    char text[512];

    read_file("/proc/stat", text, sizeof(text));
    if (sscanf(text, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &n[0], &n[1], &n[2], &n[3],
               &n[4], &n[5], &n[6], &n[7]) < 4)
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(n); i++)
        all += n[i];
    unsigned long long idle = n[3] + n[4], span = all - last_all, rest = idle - last_idle;
    bool first = last_all == 0;
    last_all = all;
    last_idle = idle;
    return first || span == 0 || rest > span ? 0 : 100.0 * (double)(span - rest) / (double)span;
}

void facts_now(struct facts_now *out)
{
    char text[256];
    double uptime = 0;

    *out = (struct facts_now){ .cpu_percent = cpu_percent() };
    read_memory(&out->memory_total, &out->memory_used);
    read_disk(&out->disk_total, &out->disk_used);
    read_file("/proc/loadavg", text, sizeof(text));
    if (sscanf(text, "%lf %lf %lf", &out->load_avg[0], &out->load_avg[1], &out->load_avg[2]) != 3)
        memset(out->load_avg, 0, sizeof(out->load_avg));
    read_file("/proc/uptime", text, sizeof(text));
    if (sscanf(text, "%lf", &uptime) == 1)
        out->uptime_s = (int64_t)uptime;
}

static void read_step(struct facts_setup *out, size_t len)
{
    autoarena struct arena arena = { 0 };
    struct json *json;
    struct err err;

    snprintf(out->status, sizeof(out->status), "provisioning");
    if (json_parse(&arena, (struct str){ out->progress, len }, &json, &err) < 0)
        return;
    struct str step = json_text(json, "current_step");
    if (step.n)
        snprintf(out->status, sizeof(out->status), "installing:%.*s", (int)MIN(step.n, (size_t)200),
                 step.p);
}

void facts_setup(const char *dir, struct facts_setup *out)
{
    char path[4096];

    *out = (struct facts_setup){ .ready = true };
    snprintf(path, sizeof(path), "%s/agentic-setup-progress.json", dir);
    size_t len = read_file(path, out->progress, sizeof(out->progress));
    snprintf(path, sizeof(path), "%s/agentic-setup-complete", dir);
    if (faccessat(AT_FDCWD, path, F_OK, 0) == 0)
        snprintf(out->status, sizeof(out->status), "%s",
                 strstr(out->progress, "\"failed\"") ? "ready-with-errors" : "ready");
    else if (len) {
        out->ready = false;
        read_step(out, len);
    } else {
        snprintf(out->status, sizeof(out->status), "ready");
    }
}
