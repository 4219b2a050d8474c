/*
 * disk - rounds about disks, for box.c: its ask(), heard, run_true() and now_us() are used here.
 *
 *   fork     a box that runs is frozen, its disk copied, and it goes on
 *   on_disk  as `cold`, but the box writes to a disk
 *   volume   a disk mounted into a box that runs
 */
#pragma once

#define DISK_BENCH_ID 0x62656e6368ull
#define VOLUME_ROUNDS_MAX 200 /* they stay mounted */

static struct wire_msg disk_msg(enum wire_verb verb, uint64_t id, uint64_t from)
{
    return (struct wire_msg){ .verb = (uint16_t)verb, .disk = { .id = id, .from = from } };
}

static void disk_do(enum wire_verb verb, uint64_t id, uint64_t from)
{
    struct wire_msg msg = disk_msg(verb, id, from);

    ask(&msg);
}

static void box_do(enum wire_verb verb)
{
    struct wire_msg msg = { .verb = (uint16_t)verb, .name = { .id = "bench" } };

    ask(&msg);
}

/* A box on the disk of the bench, with its connection in heard_fds. */
static void disk_box(void)
{
    struct wire_msg spec = { .verb = WIRE_BOX_CREATE,
                             .spec = { .id = "bench",
                                       .memory = 256u << 20,
                                       .pids = 64,
                                       .disk = 64u << 20,
                                       .inodes = 4096,
                                       .nofile = 1024,
                                       .upper = DISK_BENCH_ID } };

    ask(&spec);
}

static double disk_fork_round(void)
{
    double begin = now_us();

    box_do(WIRE_BOX_FREEZE);
    disk_do(WIRE_DISK_MAKE, DISK_BENCH_ID + 1, DISK_BENCH_ID);
    box_do(WIRE_BOX_THAW);
    double took = now_us() - begin;
    disk_do(WIRE_DISK_DROP, DISK_BENCH_ID + 1, 0);
    return took;
}

static double disk_box_round(void)
{
    double begin = now_us();

    disk_box();
    run_true(heard_fds[1]);
    close(heard_fds[0]);
    close(heard_fds[1]);
    box_do(WIRE_BOX_DESTROY);
    return now_us() - begin;
}

static double volume_round(unsigned number)
{
    struct wire_msg msg = { .verb = WIRE_BOX_MOUNT,
                            .mount = { .name = { .id = "bench" }, .disk = DISK_BENCH_ID + 2 } };
    double begin = now_us();

    snprintf(msg.mount.target, sizeof(msg.mount.target), "/mnt/v%u", number);
    ask(&msg);
    return now_us() - begin;
}

static void disk_print(const char *name, const double *took, int rounds)
{
    printf("%s", name);
    for (int i = 0; i < rounds; i++)
        printf(" %.1f", took[i]);
    puts("");
}

static void disk_bench(int rounds)
{
    static double took[3][VOLUME_ROUNDS_MAX];

    rounds = MIN(rounds, VOLUME_ROUNDS_MAX);
    disk_do(WIRE_DISK_MAKE, DISK_BENCH_ID, 0);
    disk_do(WIRE_DISK_MAKE, DISK_BENCH_ID + 2, 0);
    for (int i = 0; i < rounds; i++)
        took[1][i] = disk_box_round();
    disk_box();
    for (int i = 0; i < rounds; i++) {
        took[0][i] = disk_fork_round();
        took[2][i] = volume_round((unsigned)i);
    }
    close(heard_fds[0]);
    close(heard_fds[1]);
    box_do(WIRE_BOX_DESTROY);
    disk_do(WIRE_DISK_DROP, DISK_BENCH_ID, 0);
    disk_do(WIRE_DISK_DROP, DISK_BENCH_ID + 2, 0);
    disk_print("fork", took[0], rounds);
    disk_print("on_disk", took[1], rounds);
    disk_print("volume", took[2], rounds);
}
