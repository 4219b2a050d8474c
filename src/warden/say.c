/* Answers: at once, or later to whoever still waits for them. */
#include "warden/boxes.h"

static uint32_t asker = 1;
static boxes_say_fn *say_fn;
static void *say_owner;

void say_to(boxes_say_fn *fn, void *owner)
{
    say_fn = fn;
    say_owner = owner;
}

void say(const struct wire_msg *msg, const int *fds, unsigned count)
{
    say_fn(say_owner, msg, fds, count);
}

void say_status(const struct wire_msg *request, int error)
{
    struct wire_msg msg = { .verb = request->verb, .number = request->number, .status = error };

    say(&msg, NULL, 0);
}

uint32_t say_asker(void)
{
    return asker;
}

void say_later(struct box *box, const struct wire_msg *request)
{
    box->asked = request->verb;
    box->number = request->number;
    box->asker = asker;
}

void say_answer(struct box *box, struct wire_msg *msg, int error, const int *fds, unsigned count)
{
    msg->verb = box->asked;
    msg->number = box->number;
    msg->status = error;
    if (box->asked && box->asker == asker)
        say(msg, fds, count);
    box->asked = 0;
}

void boxes_forget_asker(void)
{
    asker++;
}
