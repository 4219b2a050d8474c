/*
 * grpc.health.v1.Health: Check and Watch, as load balancers and gRPC clients know it. The messages
 * are one string in (field 1: the service) and one enum out (field 1: the status).
 */
#include "api/own.h"

#include "http/grpc.h"

enum { NOT_SERVING = 2, SERVING = 1 };

/* Reads HealthCheckRequest.service; false when the bytes are no such message. */
static bool request_service(struct str message, struct str *service)
{
    *service = STR_NONE;
    while (message.n) {
        if (message.n < 2 || message.p[0] != 0x0a || (unsigned char)message.p[1] > 127)
            return false;
        size_t len = (unsigned char)message.p[1];
        if (message.n - 2 < len)
            return false;
        *service = (struct str){ message.p + 2, len };
        message = str_from(message, len + 2);
    }
    return true;
}

static void send_status(struct grpc *grpc, const struct api *api)
{
    const char reply[2] = { 0x08, (char)(api->draining ? NOT_SERVING : SERVING) };

    grpc_send(grpc, (struct str){ reply, sizeof(reply) });
}

static int known(struct str service)
{
    return service.n == 0 || str_is(service, "grpc.health.v1.Health");
}

static void check_message(struct grpc *grpc, struct str message)
{
    struct call *call = grpc_ctx(grpc);
    struct str service;

    if (!request_service(message, &service))
        grpc_finish(grpc, 3, "not a HealthCheckRequest");
    else if (!known(service))
        grpc_finish(grpc, 5, "unknown service");
    else {
        send_status(grpc, call->api);
        grpc_finish(grpc, 0, NULL);
    }
    call->req = NULL;
    call_free(call);
}

static void ended_early(struct grpc *grpc)
{
    struct call *call = grpc_ctx(grpc);

    grpc_finish(grpc, 3, "a request message is needed");
    call->req = NULL;
    call_free(call);
}

static void cancelled(struct grpc *grpc)
{
    struct call *call = grpc_ctx(grpc);

    call->req = NULL;
    call_free(call);
}

static const struct grpc_ops check_ops = { .on_message = check_message,
                                           .on_end = ended_early,
                                           .on_cancel = cancelled };

static int check_open(struct call *call, struct err *err)
{
    (void)err;
    grpc_begin(call->req, &check_ops, call);
    return 0;
}

const struct route grpc_health_routes[] = {
    { .name = "grpc.health",
      .method = "POST",
      .path = "/grpc.health.v1.Health/Check",
      .on = ON_STREAM,
      .roles = ROLE_PUBLIC,
      .fn = check_open,
      .flags = ROUTE_ANY_HOST | ROUTE_HIDDEN,
      .surface = SURFACE_GRPC,
      .summary = "gRPC health check. Needs no token." },
    { 0 },
};
