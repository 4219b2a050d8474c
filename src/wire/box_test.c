/* The checks of requests about sandboxes, at each limit and one beyond; and random bytes. */
#include "wire/box.h"

#include <string.h>

#include "base/test.h"
#include "wire/wire.h"

static struct box_spec good(void)
{
    return (struct box_spec){ .id = "a1",
                              .memory = BOX_MEMORY_MIN,
                              .disk = BOX_DISK_MIN,
                              .inodes = BOX_INODES_MIN,
                              .nofile = BOX_NOFILE_MIN,
                              .pids = BOX_PIDS_MIN };
}

TEST(a_wish_is_good_up_to_its_limits)
{
    struct box_spec spec = good();

    CHECK(box_spec_ok(&spec));
    spec.memory = spec.disk = BOX_MEMORY_MAX;
    spec.inodes = BOX_INODES_MAX;
    spec.nofile = BOX_NOFILE_MAX;
    spec.pids = BOX_PIDS_MAX;
    spec.cpu_percent = BOX_CPU_MAX;
    spec.profile = BOX_PROFILES - 1;
    CHECK(box_spec_ok(&spec));
    memset(spec.id, 'z', BOX_ID_SIZE - 1);
    CHECK(box_spec_ok(&spec));
    spec.cpu_percent++;
    CHECK(!box_spec_ok(&spec));
    spec.cpu_percent--;
    spec.io_bytes = BOX_IO_BYTES_MIN;
    spec.io_ops = BOX_IO_OPS_MAX;
    CHECK(box_spec_ok(&spec));
    spec.io_ops++;
    CHECK(!box_spec_ok(&spec));
    spec.io_ops = 0;
    spec.io_bytes = BOX_IO_FREE; /* only of one that is there */
    CHECK(!box_spec_ok(&spec));
}

TEST(an_id_is_small_letters_and_digits)
{
    static const char *const bad[] = { "", "A", "a/b", "..", "a-b", "a b", "a.", "\xc3\xa4" };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        char id[BOX_ID_SIZE] = "";

        memcpy(id, bad[i], strlen(bad[i]));
        CHECK(!box_id_ok(id));
    }
    char id[BOX_ID_SIZE] = "0az9";
    CHECK(box_id_ok(id));
    id[6] = 'x'; /* after the NUL */
    CHECK(!box_id_ok(id));
    memset(id, 'a', sizeof(id)); /* no NUL */
    CHECK(!box_id_ok(id));
}

TEST(limits_change_only_within_their_limits)
{
    struct box_limits limits = { .name = { .id = "a" }, .cpu_percent = BOX_CPU_FREE };
    struct box_limits io = limits;

    io.io_bytes = io.io_ops = BOX_IO_FREE;
    CHECK(box_limits_ok(&io));
    io.io_bytes = BOX_IO_BYTES_MAX;
    io.io_ops = BOX_IO_OPS_MIN;
    CHECK(box_limits_ok(&io));
    io.io_bytes++;
    CHECK(!box_limits_ok(&io));
    io.io_bytes = BOX_IO_BYTES_MIN;
    io.io_ops--;
    CHECK(!box_limits_ok(&io));

    CHECK(box_limits_ok(&limits));
    limits.cpu_percent = BOX_CPU_FREE - 1;
    CHECK(!box_limits_ok(&limits));
    limits.cpu_percent = 0;
    limits.memory = BOX_MEMORY_MIN - 1;
    CHECK(!box_limits_ok(&limits));
    limits.memory = BOX_MEMORY_MIN;
    CHECK(box_limits_ok(&limits));
    limits.pids = BOX_PIDS_MAX + 1;
    CHECK(!box_limits_ok(&limits));
}

TEST(one_bit_of_a_good_wish_that_flips_never_leaves_the_limits)
{
    for (size_t bit = 0; bit < sizeof(struct box_spec) * 8; bit++) {
        struct box_spec spec = good();

        ((unsigned char *)&spec)[bit / 8] ^= (unsigned char)(1 << bit % 8);
        if (!box_spec_ok(&spec))
            continue;
        CHECK(strspn(spec.id, "abcdefghijklmnopqrstuvwxyz0123456789") == strlen(spec.id));
        CHECK(spec.memory >= BOX_MEMORY_MIN && spec.memory <= BOX_MEMORY_MAX);
        CHECK(spec.pids >= BOX_PIDS_MIN && spec.pids <= BOX_PIDS_MAX && spec.flags <= BOX_FLAGS);
        CHECK(spec.layer_count == 0 && spec.net == 0);
    }
}

TEST(layers_are_as_many_as_they_say)
{
    struct box_spec spec = good();

    spec.layer_count = BOX_LAYERS_MAX;
    for (int i = 0; i < BOX_LAYERS_MAX; i++)
        spec.layers[i] = (uint64_t)i + 1;
    CHECK(box_spec_ok(&spec));
    spec.upper = 3; /* one of them */
    CHECK(!box_spec_ok(&spec));
    spec.upper = 99;
    CHECK(box_spec_ok(&spec));
    spec.layer_count--; /* one too many is named */
    CHECK(!box_spec_ok(&spec));
    spec.layers[spec.layer_count] = 0;
    CHECK(box_spec_ok(&spec));
    spec.layers[0] = 0;
    CHECK(!box_spec_ok(&spec));
    spec.layer_count = BOX_LAYERS_MAX + 1;
    CHECK(!box_spec_ok(&spec));
}

TEST(a_mount_goes_to_a_plain_path_inside)
{
    static const char *const good_ones[] = { "/a", "/workspace", "/mnt/b c/..d", "/process",
                                             "/a/dev" };
    static const char *const bad[] = { "",    "/",     "a",      "/a/",   "//a",    "/a//b",  "/.",
                                       "/..", "/a/..", "/a/./b", "/proc", "/dev/x", "/sys/fs" };
    struct box_mount mount = { .name = { .id = "a" }, .disk = 1 };

    for (size_t i = 0; i < ARRAY_LEN(good_ones) + ARRAY_LEN(bad); i++) {
        bool fine = i < ARRAY_LEN(good_ones);
        const char *path = fine ? good_ones[i] : bad[i - ARRAY_LEN(good_ones)];

        memset(mount.target, 0, sizeof(mount.target));
        memcpy(mount.target, path, strlen(path));
        CHECK(box_mount_ok(&mount) == fine);
    }
    memset(mount.target, 'a', sizeof(mount.target) - 1);
    mount.target[0] = '/';
    CHECK(box_mount_ok(&mount));
    mount.target[BOX_TARGET_SIZE - 1] = 'a'; /* no NUL */
    CHECK(!box_mount_ok(&mount));
    mount.target[BOX_TARGET_SIZE - 1] = 0;
    mount.ticket[3] = 1; /* both */
    CHECK(!box_mount_ok(&mount));
    mount.flags = BOX_MOUNT_TICKET;
    CHECK(!box_mount_ok(&mount));
    mount.disk = 0;
    CHECK(box_mount_ok(&mount));
    mount.flags = 8;
    CHECK(!box_mount_ok(&mount));
}

TEST(a_disk_has_a_number_and_a_size)
{
    struct disk_wish wish = { .id = 1, .bytes = BOX_DISK_MIN };

    CHECK(disk_wish_ok(&wish));
    wish.bytes--;
    CHECK(!disk_wish_ok(&wish));
    wish.bytes = BOX_MEMORY_MAX + 1;
    CHECK(!disk_wish_ok(&wish));
    wish.bytes = 0; /* where only the number matters */
    CHECK(disk_wish_ok(&wish));
    wish.flags = DISK_FOR_AGENT;
    CHECK(disk_wish_ok(&wish));
    wish.flags = DISK_FOR_AGENT << 1;
    CHECK(!disk_wish_ok(&wish));
    wish.flags = DISK_FOR_AGENT;
    wish.from = 2; /* a copy has its owners */
    CHECK(!disk_wish_ok(&wish));
    wish.flags = 0;
    wish.from = 0;
    wish.from = 1; /* of itself */
    CHECK(!disk_wish_ok(&wish));
    wish.id = 0;
    CHECK(!disk_wish_ok(&wish));
}

TEST(every_step_has_a_name)
{
    for (uint32_t step = 0; step < BOX_STEPS; step++)
        CHECK(strcmp(box_step_name(step), "?") != 0);
    CHECK_STR(box_step_name(BOX_STEPS), "?");
    CHECK_STR(box_step_name(UINT32_MAX), "?");
}
