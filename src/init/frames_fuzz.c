/*
 * Frames to an init, as somebody hostile at the other end would send them, between the doings of
 * its commands. The input is a list of steps: one byte says which, then what it needs. Whatever
 * comes, init's own frames stay well formed, what it holds stays within its limits, and bytes of a
 * stream follow each other without a gap.
 */
#include "init/rig.h"

static void check_frame(const char *data, size_t len)
{
    struct init_head head;
    struct init_output output;

    if (!init_frame_ok(data, len, false))
        abort();
    memcpy(&head, data, sizeof(head));
    const struct exec *exec = exec_find(head.exec);
    if (head.type != INIT_OUTPUT || !exec)
        return;
    memcpy(&output, data + sizeof(head), sizeof(output));
    if (output.stream >= INIT_STREAMS || output.position > exec->out[output.stream].end)
        abort();
}

static void check_all(void)
{
    static char data[INIT_FRAME_MAX + 1];
    ssize_t got;

    while (rig_end >= 0 && (got = recv(rig_end, data, sizeof(data), MSG_DONTWAIT)) > 0)
        check_frame(data, (size_t)got);
    for (size_t i = 0; i < exec_top; i++) {
        const struct exec *exec = &execs[i];

        if (exec->in_len > INIT_STDIN_QUEUE || exec_top > INIT_EXECS_MAX)
            abort();
        for (int s = 0; s < INIT_STREAMS; s++)
            if (exec->out[s].begin > exec->out[s].sent || exec->out[s].sent > exec->out[s].end ||
                exec->out[s].end - exec->out[s].begin > INIT_RING_SIZE)
                abort();
    }
}

static void print_bytes(uint8_t which, uint8_t len)
{
    static const char text[65536];
    struct exec *exec = &execs[which % (exec_top ? exec_top : 1)];

    if (exec->id && !exec->ended)
        (void)!write(rig_child(exec)->fd[1 + (which & 1)], text, (size_t)len * 256);
}

static void end_one(uint8_t which)
{
    struct exec *exec = &execs[which % (exec_top ? exec_top : 1)];

    if (exec->id && !exec->ended)
        rig_exit(exec, which);
}

/* What one step needs of the input; how much it took. */
static size_t step(const uint8_t *data, size_t size)
{
    if (data[0] == 0 || data[0] > 4) { /* a datagram: two bytes of length */
        if (size < 3)
            return size;
        size_t len = MIN((size_t)data[1] | (size_t)data[2] << 8, size - 3);

        if (rig_end >= 0)
            (void)!send(rig_end, data + 3, len, MSG_NOSIGNAL | MSG_DONTWAIT);
        return 3 + len;
    }
    if (size < 3)
        return size;
    if (data[0] == 1)
        print_bytes(data[1], data[2]);
    else if (data[0] == 2)
        end_one(data[1]);
    else if (data[0] == 3)
        rig_connect();
    else
        rig_now += data[1];
    return 3;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    rig_begin();
    while (size) {
        size_t took = step(data, size);

        data += took;
        size -= took;
        rig_turn();
        check_all();
    }
    rig_clear();
    return 0;
}
