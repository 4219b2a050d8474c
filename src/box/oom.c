/*
 * Did a command fail for lack of memory? Its init cannot know: the kernel counts those it killed in
 * the sandbox's cgroup, which only the warden reads. So the end of a command that failed waits for
 * that number; if it has grown since the command began, as far as we had looked then, that is told
 * with the end. One that ended well is not asked about: that would cost every command a question.
 */
#include "box/own.h"

struct question {
    struct boxes *boxes;
    uint32_t number;
    struct init_exited end;
};

static void told(struct ask *ask, const struct wire_msg *msg, int fds[WIRE_FDS_MAX])
{
    autofree struct question *question = ask->out;
    struct box *box = map_get(&question->boxes->by_id, str_of(ask->msg.name.id));
    struct box_exec *exec = box ? exec_by_number(box, question->number) : NULL;

    (void)fds;
    if (!exec || !exec->oom_asked || (!msg && question->boxes->stopping))
        return; /* its sandbox is gone, or we are: its init tells the next one */
    exec->oom_asked = false;
    exec->oom_known = true;
    if (msg && msg->status == 0) {
        exec->oom = msg->usage.oom_kills > exec->oom_before;
        box->oom_kills = msg->usage.oom_kills;
    }
    exec_exited(exec, &question->end);
}

bool exec_ask_oom(struct box_exec *exec, const struct init_exited *end)
{
    struct boxes *boxes = exec->box->boxes;
    bool own = end->timed_out || exec->killed;

    if (exec->oom_asked)
        return true;
    if (end->code == 0 || own || exec->oom_known || boxes->stopping)
        return false;
    struct question *question = xnew(struct question);
    *question = (struct question){ boxes, exec->number, *end };
    struct ask *ask = ask_new(WIRE_BOX_STAT, exec->box->id);
    ask->answered = told;
    ask->out = question;
    exec->oom_asked = true;
    ask_send(boxes, ask);
    return true;
}
