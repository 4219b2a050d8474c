/*
 * What isolates a sandbox, layer by layer: what was asked for, what the kernel says is applied, and
 * what is lost of it. One line per layer, so that whoever reads it needs to know no field by name;
 * a line without a loss is as strong as it was meant to be.
 */
#include <stdio.h>

#include "api/own.h"
#include "box/boxes.h"

#define TEXT_SIZE 128

/* What is written about one layer; an empty text is null. */
struct layer {
    char asked[TEXT_SIZE], applied[TEXT_SIZE];
    const char *lost;
};

struct seen {
    const struct sandbox_view *view;
    const struct box_applied *applied;
    const struct layers_egress *egress;
    uint32_t lost;
};

static const char no_cgroups[] =
    "the user who started the server has no cgroups: run it as root, or below a cgroup v2 that was "
    "delegated to this user (Delegate=yes)";

static void number(char out[TEXT_SIZE], uint64_t value, const char *suffix)
{
    if (value <= INT64_MAX)
        snprintf(out, TEXT_SIZE, "%llu%s", (unsigned long long)value, suffix);
}

static void namespaces(const struct seen *seen, struct layer *out)
{
    static const char *const names[BOX_NS_COUNT] = { "pid", "mnt",    "net", "ipc",
                                                     "uts", "cgroup", "user" };
    size_t at = 0;
    unsigned missing = 0;

    snprintf(out->asked, TEXT_SIZE, "pid mnt net ipc uts cgroup user");
    for (size_t i = 0; i < BOX_NS_COUNT; i++)
        if (seen->applied->own_ns >> i & 1)
            at += (size_t)snprintf(out->applied + at, TEXT_SIZE - at, "%s%s", at ? " " : "",
                                   names[i]);
        else
            missing++;
    out->lost = missing ? "it shares one with the host" : NULL;
}

static void user_ids(const struct seen *seen, struct layer *out)
{
    snprintf(out->asked, TEXT_SIZE, "%u of its own", BOX_UIDS);
    snprintf(out->applied, TEXT_SIZE, "%u from %u on", seen->applied->uid_count,
             seen->applied->uid_first);
    if (seen->lost & BOX_LOST_OWN_ID)
        out->lost = "outside it is the user who started the server: give that user a range in "
                    "/etc/subuid and /etc/subgid, and install uidmap";
    else if (seen->lost & BOX_LOST_IDS)
        out->lost = "fewer ids than an image may want, 0 and 1000 among them: a larger range in "
                    "/etc/subuid and /etc/subgid gives more";
}

static void capabilities(const struct seen *seen, struct layer *out)
{
    snprintf(out->asked, TEXT_SIZE, "none for commands%s",
             strcmp(seen->view->user, "root") == 0 ? " of agent, a short list for root" : "");
    snprintf(out->applied, TEXT_SIZE, "process 1 has %016llx",
             (unsigned long long)seen->applied->caps[BOX_CAPS_PERMITTED]);
}

static void no_new_privs(const struct seen *seen, struct layer *out)
{
    snprintf(out->asked, TEXT_SIZE, "yes");
    snprintf(out->applied, TEXT_SIZE, seen->applied->no_new_privs ? "yes" : "no");
}

static void seccomp(const struct seen *seen, struct layer *out)
{
    const struct box_applied *applied = seen->applied;
    int size = (int)sizeof(applied->seccomp_digest);

    snprintf(out->asked, TEXT_SIZE, "profile %s",
             seen->view->nesting ? "nesting" : seen->view->user);
    snprintf(out->applied, TEXT_SIZE, "mode %u, %u filters%s%.*s", applied->seccomp_mode,
             applied->seccomp_filters, applied->seccomp_digest[0] ? ", " : "", size,
             applied->seccomp_digest);
    if (seen->view->nesting)
        out->lost = "user namespaces and mounts are allowed inside, as asked: much of the kernel "
                    "that is closed otherwise can be reached";
    else if (seen->lost & BOX_LOST_FILTER)
        out->lost = "which filter it is cannot be read back: the kernel tells root alone";
}

static void landlock(const struct seen *seen, struct layer *out)
{
    snprintf(out->asked, TEXT_SIZE, seen->view->nesting ? "scopes" : "files below /, and scopes");
    snprintf(out->applied, TEXT_SIZE, "version %u", seen->applied->landlock_abi);
    if (seen->view->files.count) {
        size_t at = strlen(out->asked);

        snprintf(out->asked + at, TEXT_SIZE - at, "; %zu rules about files for commands",
                 seen->view->files.count);
        at = strlen(out->applied);
        snprintf(out->applied + at, TEXT_SIZE - at, "; each command starts under them, or not");
    }
    if (seen->view->nesting)
        out->lost = "no rule about files: who is under one cannot mount";
}

static void proc_masks(const struct seen *seen, struct layer *out)
{
    snprintf(out->asked, TEXT_SIZE, seen->view->nesting ? "none" : "what tells of the host");
    snprintf(out->applied, TEXT_SIZE, "%u mounts, %u writable", seen->applied->mounts,
             seen->applied->mounts_writable);
    if (seen->view->nesting)
        out->lost = "nothing of /proc is covered: tools inside could not mount their own";
}

static void nested(const struct seen *seen, struct layer *out)
{
    snprintf(out->asked, TEXT_SIZE, seen->view->nesting ? "allowed" : "none");
    snprintf(out->applied, TEXT_SIZE, seen->applied->nested ? "allowed" : "none");
}

static void image(const struct seen *seen, struct layer *out)
{
    snprintf(out->asked, TEXT_SIZE, "files of its root");
    snprintf(out->applied, TEXT_SIZE, "%s%s",
             seen->lost & BOX_LOST_IMAGE ? "files of nobody" : "as asked",
             seen->view->image ? "" : "; /usr is the host's: file locks and inotify are shared");
    if (seen->lost & BOX_LOST_IMAGE)
        out->lost = "root inside can replace files of the image and not change them: idmapped "
                    "mounts are root's";
}

static void memory(const struct seen *seen, struct layer *out)
{
    number(out->asked, (uint64_t)seen->view->memory, "");
    number(out->applied, seen->applied->memory, "");
    if (seen->lost & BOX_LOST_MEMORY) {
        number(out->applied, seen->applied->data, " for each process");
        out->lost = no_cgroups;
    }
}

static void pids(const struct seen *seen, struct layer *out)
{
    number(out->asked, (uint64_t)seen->view->pids, "");
    number(out->applied, seen->applied->pids, "");
    if (seen->lost & BOX_LOST_PIDS) {
        number(out->applied, seen->applied->nproc, " for each user inside");
        out->lost = no_cgroups;
    }
}

static void cpu(const struct seen *seen, struct layer *out)
{
    const struct box_applied *applied = seen->applied;

    number(out->asked, (uint64_t)seen->view->cpu_percent, "");
    if (applied->cpu_quota_us && applied->cpu_period_us)
        number(out->applied, applied->cpu_quota_us * 100 / applied->cpu_period_us, "");
    out->lost = seen->lost & BOX_LOST_CPU ? no_cgroups : NULL;
}

/* Two limits of one kind: a line for each, so that asked and applied can be compared. */
static void io_lost(const struct seen *seen, uint64_t applied, struct layer *out)
{
    if (!out->asked[0])
        return;
    number(out->applied, applied, "");
    if (seen->lost & BOX_LOST_IO)
        out->lost = "there is no disk here that can be limited, or no cgroup that does it";
    else if (seen->applied->io_direct)
        out->lost = "what is written through the page cache is not held back: cgroup v1 does not "
                    "know whose it is";
}

static void io_bytes(const struct seen *seen, struct layer *out)
{
    number(out->asked, seen->view->io_bytes ? (uint64_t)seen->view->io_bytes : UINT64_MAX, "");
    io_lost(seen, seen->applied->io_bytes, out);
}

static void io_ops(const struct seen *seen, struct layer *out)
{
    number(out->asked, seen->view->io_ops ? (uint64_t)seen->view->io_ops : UINT64_MAX, "");
    io_lost(seen, seen->applied->io_ops, out);
}

static void disk(const struct seen *seen, struct layer *out)
{
    number(out->asked, (uint64_t)seen->view->disk, "");
    number(out->applied, seen->applied->disk, "");
    if (seen->lost & BOX_LOST_DISKS)
        out->lost = "nothing outlives it: disks are for a server started by root";
}

static void inodes(const struct seen *seen, struct layer *out)
{
    if (seen->view->inodes == 0) { /* on a disk */
        snprintf(out->asked, TEXT_SIZE, "what fits into disk");
        snprintf(out->applied, TEXT_SIZE, "as asked");
        return;
    }
    number(out->asked, (uint64_t)seen->view->inodes, "");
    number(out->applied, seen->applied->inodes ? seen->applied->inodes : UINT64_MAX, "");
}

static void nofile(const struct seen *seen, struct layer *out)
{
    number(out->asked, (uint64_t)seen->view->nofile, "");
    number(out->applied, seen->applied->nofile, "");
}

static void freezer(const struct seen *seen, struct layer *out)
{
    snprintf(out->asked, TEXT_SIZE, "pause, and figures of use");
    snprintf(out->applied, TEXT_SIZE, "cgroups %.*s", (int)sizeof(seen->applied->cgroup_mode),
             seen->applied->cgroup_mode);
    out->lost = seen->lost & (BOX_LOST_FREEZER | BOX_LOST_USAGE) ? no_cgroups : NULL;
}

/* The versions rise with every change of a layer, a pack or a secret that concerns it. */
static void egress(const struct seen *seen, struct layer *out)
{
    const struct layers_egress *egress = seen->egress;

    snprintf(out->asked, TEXT_SIZE, "mode %s, policy %llu", egress->mode,
             (unsigned long long)egress->version);
    if (egress->held)
        snprintf(out->applied, TEXT_SIZE, "policy %llu, for %s", (unsigned long long)egress->held,
                 egress->steered ? "every connection" : "what uses the proxy; the rest fails");
    if (!egress->linked)
        out->lost = "the egress process is not there: nothing is let out until it is back";
    else if (egress->held != egress->version)
        out->lost = "the egress process has not said yet that this policy holds";
}

static const struct {
    const char *name;
    void (*fill)(const struct seen *seen, struct layer *out);
} layers[] = {
    { "namespaces", namespaces },
    { "user_ids", user_ids },
    { "capabilities", capabilities },
    { "no_new_privs", no_new_privs },
    { "seccomp", seccomp },
    { "landlock", landlock },
    { "proc", proc_masks },
    { "nested", nested },
    { "image", image },
    { "memory", memory },
    { "pids", pids },
    { "cpu_percent", cpu },
    { "io_bytes", io_bytes },
    { "io_ops", io_ops },
    { "disk", disk },
    { "inodes", inodes },
    { "nofile", nofile },
    { "cgroups", freezer },
    { "egress", egress },
};

void layers_put(struct json_out *json, const struct sandbox_view *view,
                const struct box_applied *applied, const struct layers_egress *egress_now)
{
    const struct seen seen = { view, applied, egress_now, applied->lost };

    json_open(json, '[');
    for (size_t i = 0; i < ARRAY_LEN(layers); i++) {
        struct layer layer = { 0 };

        layers[i].fill(&seen, &layer);
        json_open(json, '{');
        json_kv_text(json, "layer", layers[i].name);
        json_kv_text(json, "asked", layer.asked[0] ? layer.asked : NULL);
        json_kv_text(json, "applied", layer.applied[0] ? layer.applied : NULL);
        json_kv_text(json, "lost", layer.lost);
        json_close(json, '}');
    }
    json_close(json, ']');
}

const char *layers_detail(struct arena *arena, uint32_t lost)
{
    static const char *const names[BOX_LOSSES] = { "memory", "cpu",    "pids",  "freezer",
                                                   "usage",  "disks",  "image", "ids",
                                                   "own_id", "filter", "io" };
    autobuf struct buf text = { .max = 512 };
    struct json_out json = json_to(&text);

    if (!lost)
        return NULL;
    json_open_list(&json, "lost");
    for (size_t i = 0; i < BOX_LOSSES; i++)
        if (lost >> i & 1)
            json_put_str(&json, str_of(names[i]));
    json_close_list(&json);
    return arena_memdup0(arena, text.data, text.len);
}
