/* grpc.health.v1.Health: whether the server serves, as load balancers and gRPC clients ask. */
#include <grpc/health/v1/health.pb-c.h>

#include "api/rpc.h"

/* The server itself, or one of the services that it has. */
static bool known(const char *service)
{
    return !*service || rpc_service_known(service);
}

static int check(struct rpc *rpc, ProtobufCMessage *message, struct err *err)
{
    const Grpc__Health__V1__HealthCheckRequest *request = (void *)message;
    Grpc__Health__V1__HealthCheckResponse reply = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;

    if (!known(request->service))
        return err_set(err, ERR_NOT_FOUND, "unknown service");
    reply.status = rpc->call->api->draining
                       ? GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING
                       : GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING;
    rpc_reply(rpc, &reply.base);
    return 0;
}

static const struct rpc_method check_method = {
    .takes = &grpc__health__v1__health_check_request__descriptor,
    .gives = &grpc__health__v1__health_check_response__descriptor,
    .fn = check,
};

const struct route rpc_health_routes[] = {
    RPC_ROUTE("grpc.health.v1.Health", "Check", "grpc.health", ROLE_PUBLIC, &check_method,
              | ROUTE_ANY_HOST),
    { 0 },
};
