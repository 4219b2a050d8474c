/* All tables of routes. A new noun adds its table here and is then served, described and checked.
 */
#include "api/own.h"

extern const struct route meta_routes[], token_routes[], event_routes[], audit_routes[],
    backup_routes[], rpc_health_routes[], web_routes[], sandbox_routes[], exec_routes[],
    file_routes[], volume_routes[], snapshot_routes[], change_routes[], pool_routes[],
    image_routes[], secret_routes[], agentbox_routes[], rpc_reflection_routes[], agent_routes[],
    agent_link_routes[], vm_routes[], operation_routes[];

const struct route *const api_tables[] = {
    meta_routes,
    token_routes,
    event_routes,
    audit_routes,
    backup_routes,
    sandbox_routes,
    change_routes,
    exec_routes,
    file_routes,
    volume_routes,
    snapshot_routes,
    web_routes,
    pool_routes,
    image_routes,
    secret_routes,
    agentbox_routes,
    rpc_health_routes,
    rpc_reflection_routes,
    agent_routes,
    agent_link_routes,
    vm_routes,
    operation_routes,
    NULL,
};
