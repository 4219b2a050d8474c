/*
 * The layers are a table; each is applied or its loss decided, in order. no_new_privs comes first,
 * because the other two need it.
 *
 * Landlock: everything the kernel's version can govern is governed, and only the data directory is
 * opened again. TCP and the signal and abstract-socket scopes come with newer versions; on older
 * kernels seccomp alone forbids those, so that is no loss.
 */
#include "daemon/jail.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/log.h"

/* linux/landlock.h as of version 7; the header of an older kernel lacks the newer half. */
struct landlock_ruleset {
    uint64_t fs, net, scoped;
};
struct landlock_beneath {
    uint64_t allowed;
    int32_t fd;
} __attribute__((packed));
#define LANDLOCK_VERSION_FLAG 1u
#define LANDLOCK_RULE_BENEATH 1
#define LL_WRITE_FILE (1u << 1)
#define LL_READ_FILE (1u << 2)
#define LL_READ_DIR (1u << 3)
#define LL_REMOVE_DIR (1u << 4)
#define LL_REMOVE_FILE (1u << 5)
#define LL_MAKE_DIR (1u << 7)
#define LL_MAKE_REG (1u << 8)
#define LL_TRUNCATE (1u << 14) /* version 3 */
#define LL_NET_BIND 1u         /* version 4 */
#define LL_NET_ALL 3u          /* bind and connect */
#define LL_SCOPE_ALL 3u        /* abstract sockets and signals; version 6 */

/* What the store does in its directory: files and directories, no links, no devices. */
#define LL_DATA                                                                                    \
    (LL_WRITE_FILE | LL_READ_FILE | LL_READ_DIR | LL_REMOVE_DIR | LL_REMOVE_FILE | LL_MAKE_DIR |   \
     LL_MAKE_REG | LL_TRUNCATE)

int jail_landlock_abi(void)
{
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_VERSION_FLAG);

    return abi < 0 ? 0 : (int)abi;
}

/* Every file access that this version knows. */
static uint64_t fs_all(int abi)
{
    static const int bits[] = { 0, 13, 14, 15, 15, 16 }; /* by version */

    return (UINT64_C(1) << bits[MIN(abi, 5)]) - 1;
}

int jail_landlock(const struct jail *jail, struct err *err)
{
    int abi = jail_landlock_abi();
    struct landlock_ruleset rules = { 0 };

    if (abi < 1)
        return err_set(err, ERR_UNSUPPORTED, "the kernel has no Landlock, or it is not enabled");
    rules.fs = fs_all(abi);
    rules.net = abi >= 4 ? (jail->egress ? LL_NET_BIND : LL_NET_ALL) : 0;
    rules.scoped = abi >= 6 ? LL_SCOPE_ALL : 0;
    /* The kernel refuses a structure longer than it knows unless the rest is zero. */
    size_t size = abi >= 6 ? 24 : abi >= 4 ? 16 : 8;
    autoclose int ruleset = (int)syscall(SYS_landlock_create_ruleset, &rules, size, 0);
    if (ruleset < 0)
        return err_sys(err, "make a Landlock ruleset");
    struct landlock_beneath data = { .allowed = LL_DATA & rules.fs, .fd = jail->data_fd };
    if (jail->data_fd >= 0 &&
        syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_BENEATH, &data, 0) < 0)
        return err_sys(err, "allow the data directory");
    if (syscall(SYS_landlock_restrict_self, ruleset, 0) < 0)
        return err_sys(err, "enter Landlock");
    return 0;
}

int jail_process(const struct jail *jail, struct err *err)
{
    const struct rlimit none = { 0, 0 };

    (void)jail;
    umask(077);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return err_sys(err, "no_new_privs");
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return err_sys(err, "be non-dumpable");
    if (setrlimit(RLIMIT_CORE, &none) < 0)
        return err_sys(err, "no core files");
    return 0;
}

static const struct layer {
    const char *name;
    int (*apply)(const struct jail *jail, struct err *err);
} layers[] = {
    { "no_new_privs", jail_process },
    { "landlock", jail_landlock },
    { "seccomp", jail_seccomp },
};

static bool may_lose(const struct jail *jail, const char *name)
{
    for (const char *const *one = jail->allow_degraded; one && *one; one++)
        if (strcmp(*one, name) == 0)
            return true;
    return false;
}

int jail_enter(const struct jail *jail, struct err *err)
{
    int lost = 0;

    for (size_t i = 0; i < ARRAY_LEN(layers); i++) {
        if (layers[i].apply(jail, err) == 0)
            continue;
        if (!may_lose(jail, layers[i].name))
            return err_wrap(err,
                            "jail layer %s cannot be applied (allow_degraded = %s accepts that)",
                            layers[i].name, layers[i].name);
        log_warn("serving without a layer of the jail, as allowed", kv_str("layer", layers[i].name),
                 kv_str("why", err->msg));
        lost++;
    }
    return lost;
}
