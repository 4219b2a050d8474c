/*
 * grpc.health.v1.Health: whether the server serves, as load balancers and gRPC clients ask. A watch
 * is told the state at once and again when the server begins to stop, which is the only change that
 * one process sees; then it ends. Nobody needs a token, so there is a limit to watches.
 */
#include <grpc/health/v1/health.pb-c.h>

#include "api/rpc.h"

#define STATUS(name) GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__##name

/* The server itself, or one of the services that it has. */
static bool known(const char *service)
{
    return !*service || rpc_service_known(service);
}

static Grpc__Health__V1__HealthCheckResponse status_now(const struct rpc *rpc)
{
    Grpc__Health__V1__HealthCheckResponse reply = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;

    reply.status = rpc->call->api->draining ? STATUS(NOT_SERVING) : STATUS(SERVING);
    return reply;
}

static int check(struct rpc *rpc, ProtobufCMessage *message, struct err *err)
{
    const Grpc__Health__V1__HealthCheckRequest *request = (void *)message;
    Grpc__Health__V1__HealthCheckResponse reply = status_now(rpc);

    if (!known(request->service))
        return err_set(err, ERR_NOT_FOUND, "unknown service");
    rpc_reply(rpc, &reply.base);
    return 0;
}

static void watch_tell(struct rpc *rpc)
{
    const Grpc__Health__V1__HealthCheckRequest *request = rpc->state;
    Grpc__Health__V1__HealthCheckResponse reply = status_now(rpc);

    if (!known(request->service)) /* a later version may have it, so this is no error */
        reply.status = STATUS(SERVICE_UNKNOWN);
    rpc_send(rpc, &reply.base);
}

static void watch_over(struct rpc *rpc, enum rpc_end why)
{
    (void)why;
    rpc->call->api->own->watches--;
}

static int watch(struct rpc *rpc, ProtobufCMessage *message, struct err *err)
{
    struct api_private *own = rpc->call->api->own;

    if (own->watches >= HEALTH_WATCHES_MAX)
        return err_set(err, ERR_RATE, "%d watches are open already", HEALTH_WATCHES_MAX);
    own->watches++;
    rpc->state = message;
    rpc->over = watch_over;
    rpc->last = watch_tell;
    watch_tell(rpc);
    return 0;
}

static const struct rpc_method check_method = {
    .takes = &grpc__health__v1__health_check_request__descriptor,
    .gives = &grpc__health__v1__health_check_response__descriptor,
    .fn = check,
};

static const struct rpc_method watch_method = {
    .takes = &grpc__health__v1__health_check_request__descriptor,
    .gives = &grpc__health__v1__health_check_response__descriptor,
    .fn = watch,
    .streams_out = true,
};

#define HEALTH(method_, rpc_)                                                                      \
    RPC_ROUTE("grpc.health.v1.Health", method_, "grpc.health", ROLE_PUBLIC, rpc_, | ROUTE_ANY_HOST)

const struct route rpc_health_routes[] = {
    HEALTH("Check", &check_method),
    HEALTH("Watch", &watch_method),
    { 0 },
};
