/* Every command, in the order in which help lists them. */
#include "cli/cli.h"

extern const struct command cmd_serve, cmd_doctor, cmd_health, cmd_version, cmd_whoami, cmd_login,
    cmd_config_show, cmd_context_set, cmd_context_use, cmd_context_list, cmd_context_rm,
    cmd_token_create, cmd_token_list, cmd_token_revoke, cmd_event_tail, cmd_audit_tail,
    cmd_audit_verify, cmd_run, cmd_create, cmd_ls, cmd_show, cmd_exec, cmd_execs, cmd_pause,
    cmd_resume, cmd_stop, cmd_start, cmd_rm, cmd_stats, cmd_backup, cmd_restore, cmd_completion,
    cmd_help, cmd_docs;

/* clang-format off */
const struct command *const commands[] = {
    &cmd_serve,
    &cmd_doctor,
    &cmd_health,
    &cmd_version,
    &cmd_whoami,
    &cmd_login,
    &cmd_run,
    &cmd_create,
    &cmd_ls,
    &cmd_show,
    &cmd_exec,
    &cmd_execs,
    &cmd_pause,
    &cmd_resume,
    &cmd_stop,
    &cmd_start,
    &cmd_rm,
    &cmd_stats,
    &cmd_config_show,
    &cmd_context_set,
    &cmd_context_use,
    &cmd_context_list,
    &cmd_context_rm,
    &cmd_token_create,
    &cmd_token_list,
    &cmd_token_revoke,
    &cmd_event_tail,
    &cmd_audit_tail,
    &cmd_audit_verify,
    &cmd_backup,
    &cmd_restore,
    &cmd_completion,
    &cmd_help,
    &cmd_docs,
    NULL,
};
/* clang-format on */
