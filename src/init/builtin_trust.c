/*
 * What the programs of this sandbox trust: a certificate of an authority is put where they look.
 * Systems keep one file of all authorities; ours stands at its end between two lines, so that the
 * next one takes its place. Beside that, files of our own for programs that are told by a variable,
 * and one under the name that OpenSSL looks for in a directory.
 *
 * It runs as root of the sandbox, in directories that are root's; each file is made anew beside the
 * old one and moved into its place, so no link is written through and nobody reads half of it.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "init/init.h"

#define PEM_MAX 8192
#define BUNDLE_MAX (8u << 20)

static const char begin_line[] = "# atoll: the authority of this sandbox\n";
static const char end_line[] = "# atoll: end\n";

/* Where systems keep it; what leads to one that is done already stays as it is. */
static const char *const bundles[] = {
    "/etc/ssl/certs/ca-certificates.crt",                /* Debian, Alpine, Arch */
    "/etc/pki/tls/certs/ca-bundle.crt",                  /* Fedora, RHEL */
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", /* the same, newer */
    "/etc/ssl/ca-bundle.pem",                            /* openSUSE */
    "/etc/ssl/cert.pem",                                 /* Alpine, others */
};

/* Java's own, likewise (java.c). */
static const char *const java_stores[] = {
    "/etc/ssl/certs/java/cacerts",              /* Debian, Alpine */
    "/etc/pki/ca-trust/extracted/java/cacerts", /* Fedora, RHEL */
    "/opt/java/openjdk/lib/security/cacerts",   /* images of Temurin */
};

struct text {
    char *data;
    size_t len;
};

static void text_free(struct text *text)
{
    free(text->data);
}

static int read_all(int fd, size_t max, struct text *out)
{
    char *data = malloc(max + 1);
    size_t len = 0;

    if (!data) {
        errno = ENOMEM;
        return -1;
    }
    for (;;) {
        ssize_t got = read(fd, data + len, max + 1 - len);

        if (got < 0 && errno == EINTR)
            continue;
        if (got > 0 && (len += (size_t)got) <= max)
            continue;
        if (got == 0) {
            *out = (struct text){ data, len };
            return 0;
        }
        if (got > 0)
            errno = EFBIG;
        free(data);
        return -1;
    }
}

static int write_file(const char *path, mode_t mode, const struct text *parts, size_t count)
{
    char temp[PATH_MAX];

    if (snprintf(temp, sizeof(temp), "%s.atoll", path) >= (int)sizeof(temp)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    (void)unlink(temp);
    autoclose int fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -1;
    bool good = true;
    for (size_t i = 0; i < count && good; i++)
        for (size_t done = 0; done < parts[i].len && good;) {
            ssize_t put = write(fd, parts[i].data + done, parts[i].len - done);

            good = put > 0;
            done += good ? (size_t)put : 0;
        }
    if (good && fchmod(fd, mode) == 0 && rename(temp, path) == 0)
        return 0;
    int error = errno;
    (void)unlink(temp);
    errno = error;
    return -1;
}

/* Without the block that an earlier one left. */
static void cut_block(struct text *text)
{
    char *from = memmem(text->data, text->len, begin_line, sizeof(begin_line) - 1);

    if (!from)
        return;
    size_t left = text->len - (size_t)(from - text->data);
    char *end = memmem(from, left, end_line, sizeof(end_line) - 1);
    if (!end)
        return;
    end += sizeof(end_line) - 1;
    memmove(from, end, left - (size_t)(end - from));
    text->len -= (size_t)(end - from);
}

static bool ends_with(const struct text *text, const char *end, size_t len)
{
    return text->len >= len && memcmp(text->data + text->len - len, end, len) == 0;
}

/* The same certificate at its end: nothing is to be done. */
static bool is_in(const struct text *text, const struct text *pem)
{
    size_t tail = sizeof(end_line) - 1 + pem->len;

    return ends_with(text, end_line, sizeof(end_line) - 1) && text->len >= tail &&
           memcmp(text->data + text->len - tail, pem->data, pem->len) == 0;
}

/*
 * What is in a file, and where it really is: links to it stay links. 1; 0: there is no such file;
 * -1 with errno.
 */
static int read_store(const char *name, struct text *out, char path[PATH_MAX], mode_t *mode)
{
    char own[32];
    struct stat st;
    autoclose int fd = open(name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);

    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return 0;
    snprintf(own, sizeof(own), "/proc/self/fd/%d", fd);
    ssize_t len = readlink(own, path, PATH_MAX - 1);
    if (len <= 0)
        return -1;
    path[len] = 0;
    *mode = st.st_mode & 0755;
    return read_all(fd, BUNDLE_MAX, out) < 0 ? -1 : 1;
}

/* 1: it trusts it now; 0: there is no such bundle; -1 with errno. */
static int put_bundle(const char *name, const struct text *pem)
{
    char path[PATH_MAX];
    struct text old auto_with(text_free) = { 0 };
    mode_t mode;
    int rc = read_store(name, &old, path, &mode);

    if (rc <= 0)
        return rc;
    if (is_in(&old, pem))
        return 1;
    cut_block(&old);
    bool line = !old.len || old.data[old.len - 1] == '\n';
    const struct text parts[] = { old,
                                  { (char *)(uintptr_t) "\n", line ? 0 : 1 },
                                  { (char *)(uintptr_t)begin_line, sizeof(begin_line) - 1 },
                                  *pem,
                                  { (char *)(uintptr_t)end_line, sizeof(end_line) - 1 } };
    return write_file(path, mode, parts, ARRAY_LEN(parts)) < 0 ? -1 : 1;
}

/* Where there is none, or one that we cannot add to, nothing is done. */
static int put_java(const char *name, const struct text *pem)
{
    char path[PATH_MAX];
    struct text old auto_with(text_free) = { 0 }, made auto_with(text_free) = { 0 };
    mode_t mode;
    uint8_t *data;

    if (read_store(name, &old, path, &mode) <= 0)
        return 0;
    if (java_trust((const uint8_t *)old.data, old.len, pem->data, pem->len,
                   (uint64_t)time(NULL) * 1000, &data, &made.len) != JAVA_NEW)
        return 0;
    made.data = (char *)data;
    return write_file(path, mode, &made, 1);
}

static int make_dirs(void)
{
    static const char *const dirs[] = { "/etc", "/etc/ssl", TRUST_DIR };

    for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
        if (mkdir(dirs[i], 0755) < 0 && errno != EEXIST)
            return -1;
    return 0;
}

/* One name for whichever bundle this system has; for want of one, ours alone. */
static int put_own(const char *bundle, const struct text *pem)
{
    if (make_dirs() < 0 || write_file(TRUST_AUTHORITY, 0644, pem, 1) < 0)
        return -1;
    /* Made beside it and moved: whoever reads it finds the old one or the new one. */
    (void)unlink(TRUST_BUNDLE ".new");
    if (symlink(bundle ? bundle : TRUST_AUTHORITY, TRUST_BUNDLE ".new") < 0)
        return -1;
    return rename(TRUST_BUNDLE ".new", TRUST_BUNDLE);
}

int builtin_trust(struct builtin *job)
{
    struct text pem auto_with(text_free) = { 0 };
    const char *found = NULL;
    char hashed[64];
    struct stat st;

    if (strspn(job->args[0], "0123456789abcdef") != 8 || job->args[0][8])
        return tree_fail(&job->fail, TREE_USAGE, EINVAL, job->args[0]);
    if (read_all(0, PEM_MAX, &pem) < 0)
        return builtin_sys(job, NULL);
    for (size_t i = 0; i < ARRAY_LEN(bundles); i++) {
        int rc = put_bundle(bundles[i], &pem);

        if (rc < 0)
            return builtin_sys(job, bundles[i]);
        if (rc > 0 && !found)
            found = bundles[i];
    }
    for (size_t i = 0; i < ARRAY_LEN(java_stores); i++)
        if (put_java(java_stores[i], &pem) < 0)
            return builtin_sys(job, java_stores[i]);
    snprintf(hashed, sizeof(hashed), "/etc/ssl/certs/%s.0", job->args[0]);
    if (stat("/etc/ssl/certs", &st) == 0 && S_ISDIR(st.st_mode) &&
        write_file(hashed, 0644, &pem, 1) < 0)
        return builtin_sys(job, hashed);
    return put_own(found, &pem) < 0 ? builtin_sys(job, TRUST_DIR) : 0;
}
