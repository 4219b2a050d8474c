/* The sizes of every frame's payload in one table: what does not fit it is not a frame. */
#include "wire/init.h"

#include <string.h>

struct shape {
    uint16_t type;
    uint16_t least; /* fixed part */
    bool more;      /* bytes may follow it */
};

static const struct shape to_init_shapes[] = {
    { INIT_EXEC, sizeof(struct init_exec), true },
    { INIT_STDIN, 0, true },
    { INIT_SIGNAL, sizeof(struct init_signal), false },
    { INIT_RESIZE, sizeof(struct init_resize), false },
    { INIT_ACK, sizeof(struct init_ack), false },
    { INIT_ATTACH, sizeof(struct init_attach), false },
    { INIT_FORGET, 0, false },
    { INIT_LIST, 0, false },
    { INIT_PING, 0, false },
};

static const struct shape from_init_shapes[] = {
    { INIT_READY, sizeof(struct init_ready), false },
    { INIT_STARTED, sizeof(struct init_started), false },
    { INIT_OUTPUT, sizeof(struct init_output), true },
    { INIT_EXITED, sizeof(struct init_exited), false },
    { INIT_LISTED, 0, true },
    { INIT_ERROR, sizeof(struct init_error), false },
    { INIT_STDIN_ROOM, sizeof(struct init_room), false },
    { INIT_PONG, 0, false },
};

static const struct shape *shape_of(uint16_t type, bool to_init)
{
    const struct shape *shapes = to_init ? to_init_shapes : from_init_shapes;
    size_t count = to_init ? ARRAY_LEN(to_init_shapes) : ARRAY_LEN(from_init_shapes);

    for (size_t i = 0; i < count; i++)
        if (shapes[i].type == type)
            return &shapes[i];
    return NULL;
}

static bool exec_ok(const char *body)
{
    struct init_exec exec;

    memcpy(&exec, body, sizeof(exec));
    if (exec.flags & INIT_SIDE && (!(exec.flags & INIT_BUILTIN) || exec.flags & INIT_TEXT_FD))
        return false; /* there is one descriptor beside a frame */
    return exec.filec <= INIT_FILES_MAX && !(exec.filec && exec.flags & INIT_BUILTIN);
}

bool init_frame_ok(const void *data, size_t len, bool to_init)
{
    struct init_head head;

    if (len < sizeof(head) || len > INIT_FRAME_MAX)
        return false;
    memcpy(&head, data, sizeof(head));
    const struct shape *shape = shape_of(head.type, to_init);
    if (head.magic != INIT_MAGIC || head.flags != 0 || head.len != len - sizeof(head) || !shape)
        return false;
    if (head.len < shape->least || (head.len > shape->least && !shape->more))
        return false;
    if (head.type == INIT_EXEC && !exec_ok((const char *)data + sizeof(head)))
        return false;
    return head.type != INIT_LISTED || head.len % sizeof(struct init_listed) == 0;
}

const char *init_step_name(uint32_t step)
{
    static const char *const names[] = {
        [INIT_STEP_NONE] = "none",
        [INIT_STEP_LIMIT] = "too many commands",
        [INIT_STEP_TEXT] = "arguments",
        [INIT_STEP_PIPES] = "pipes",
        [INIT_STEP_TTY] = "terminal",
        [INIT_STEP_SPAWN] = "new process",
        [INIT_STEP_CWD] = "working directory",
        [INIT_STEP_USER] = "user",
        [INIT_STEP_FIND] = "program not found",
        [INIT_STEP_EXECVE] = "execve",
    };

    if (step >= INIT_STEP_FILES && step <= INIT_STEP_FILES + INIT_FILES_MAX)
        return "rules about files";
    return step < ARRAY_LEN(names) ? names[step] : "?";
}
