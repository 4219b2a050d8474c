/* All tables of routes. A new noun adds its table here and is then served, described and checked.
 */
#include "api/own.h"

/* clang-format off: a line for each */
#define TABLES(X)                                                                                  \
    X(meta_routes)                                                                                 \
    X(machine_routes)                                                                              \
    X(server_log_routes)                                                                           \
    X(token_routes)                                                                                \
    X(event_routes)                                                                                \
    X(audit_routes)                                                                                \
    X(backup_routes)                                                                               \
    X(rpc_health_routes)                                                                           \
    X(web_routes)                                                                                  \
    X(sandbox_routes)                                                                              \
    X(stats_routes)                                                                                \
    X(exec_routes)                                                                                 \
    X(file_routes)                                                                                 \
    X(volume_routes)                                                                               \
    X(aside_routes)                                                                                \
    X(snapshot_routes)                                                                             \
    X(change_routes)                                                                               \
    X(pool_routes)                                                                                 \
    X(image_routes)                                                                                \
    X(secret_routes)                                                                               \
    X(agentbox_routes)                                                                             \
    X(rpc_reflection_routes)                                                                       \
    X(agent_routes)                                                                                \
    X(agent_link_routes)                                                                           \
    X(terminal_routes)                                                                             \
    X(session_routes)                                                                              \
    X(session_ws_routes)                                                                           \
    X(orchestrate_routes)                                                                          \
    X(pty_ws_routes)                                                                               \
    X(vm_routes)                                                                                   \
    X(provision_routes)                                                                            \
    X(container_routes)                                                                            \
    X(operation_routes)                                                                            \
    X(port_routes)                                                                                 \
    X(crash_routes)                                                                                \
    X(quota_routes)                                                                                \
    X(template_routes)                                                                             \
    X(process_routes)                                                                              \
    X(egress_routes)                                                                               \
    X(egress_box_routes)                                                                           \
    X(egress_record_routes)                                                                        \
    X(ask_routes)                                                                                  \
    X(hub_agent_routes)                                                                            \
    X(hub_message_routes)                                                                          \
    X(hub_project_routes)                                                                          \
    X(hub_task_routes)                                                                             \
    X(hub_comment_routes)

#define DECLARE(table) extern const struct route table[];
TABLES(DECLARE)

#define NAME(table) table,
const struct route *const api_tables[] = { TABLES(NAME) NULL };
/* clang-format on */
