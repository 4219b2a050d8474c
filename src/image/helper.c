/*
 * `atoll helper`: the part of us that opens strangers' archives, as a command in a sandbox that is
 * thrown away afterwards. It answers with one line of JSON on standard output, which the api
 * process reads as it reads anything from a sandbox:
 *
 *   atoll helper inspect DIR ARCH     upload on standard input; the image, or {"error":…}
 *   atoll helper unpack DIR OUT K…    layer K into OUT, or several on top of one another; what was
 *                                     in them, or {"error":…}
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "image/own.h"

static int open_dir(const char *path, struct err *err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    return fd < 0 ? err_sys(err, "open %s", path) : fd;
}

static int run_inspect(char **args, struct buf *out, struct err *err)
{
    autoinfo struct image_info info = { 0 };
    autoclose int dir = open_dir(args[0], err);

    if (dir < 0 || image_inspect(&image_limits, 0, dir, args[1], &info, err) < 0)
        return -1;
    return image_info_put(&info, out, err);
}

static int open_layer(int dir, const char *number, struct err *err)
{
    uint64_t k;
    char name[32];

    if (!str_to_u64(str_of(number), &k) || k >= IMAGE_LAYERS_MAX)
        return err_set(err, ERR_INVALID, "no number of a layer: %s", number);
    snprintf(name, sizeof(name), "layer.%u", (unsigned)k);
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? err_sys(err, "open %s", name) : fd;
}

static int run_unpack(char **args, struct buf *out, struct err *err)
{
    autoclose int dir = open_dir(args[0], err), to = -1;
    int fds[IMAGE_LAYERS_MAX];
    struct image_counts counts;
    size_t count = 0;
    int rc = 0;

    if (dir < 0 || (to = open_dir(args[1], err)) < 0)
        return -1;
    for (char **number = args + 2; rc == 0 && *number && count < ARRAY_LEN(fds); number++) {
        fds[count] = open_layer(dir, *number, err);
        if (fds[count] < 0)
            rc = -1;
        else
            count++;
    }
    if (rc == 0)
        rc = image_unpack(&image_limits, fds, count, to, &counts, err);
    while (count > 0)
        close(fds[--count]);
    if (rc < 0)
        return -1;
    struct json_out json = json_to(out);
    json_open(&json, '{');
    json_kv_int(&json, "entries", (int64_t)counts.entries);
    json_kv_int(&json, "bytes", (int64_t)counts.bytes);
    json_kv_int(&json, "whiteouts", (int64_t)counts.whiteouts);
    json_kv_int(&json, "devices", (int64_t)counts.devices);
    json_kv_int(&json, "xattrs", (int64_t)counts.xattrs);
    json_kv_int(&json, "setuid", (int64_t)counts.setuid);
    json_close(&json, '}');
    return 0;
}

static const struct {
    const char *name;
    int args; /* at least */
    int (*run)(char **args, struct buf *out, struct err *err);
} jobs[] = {
    { "inspect", 2, run_inspect },
    { "unpack", 3, run_unpack },
};

static int say(struct buf *out)
{
    buf_putc(out, '\n');
    for (size_t done = 0; done < out->len;) {
        ssize_t put = write(1, out->data + done, out->len - done);

        if (put <= 0)
            return 1;
        done += (size_t)put;
    }
    return 0;
}

static int refuse(const struct err *err)
{
    autobuf struct buf out = { 0 };
    struct json_out json = json_to(&out);

    json_open(&json, '{');
    json_key(&json, "error");
    json_open(&json, '{');
    json_kv_text(&json, "code", err_info(err->code)->name);
    json_kv_text(&json, "message", err->msg);
    json_close(&json, '}');
    json_close(&json, '}');
    (void)say(&out);
    return 1;
}

int helper_main(int argc, char **argv)
{
    autobuf struct buf out = { 0 };
    struct err err = { 0 };

    mem_untraced();
    umask(0);
    for (size_t i = 0; argc >= 3 && i < ARRAY_LEN(jobs); i++)
        if (strcmp(argv[2], jobs[i].name) == 0 && argc >= 3 + jobs[i].args)
            return jobs[i].run(argv + 3, &out, &err) < 0 ? refuse(&err) : say(&out);
    fputs("atoll helper is for the server's own use\n", stderr);
    return 64;
}
