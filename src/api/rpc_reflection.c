/*
 * Server reflection, v1 and v1alpha (the messages are the same): which services there are, and the
 * files that describe them, as protoc wrote them (proto/, embedded). Only for callers with a
 * credential: what is served here is nobody else's business.
 *
 * A file is found by any symbol in it. There are few files and few symbols, so each question walks
 * over the descriptors themselves; they are ours, and still every length in them is checked.
 */
#include <grpc/reflection/v1/reflection.pb-c.h>

#include "api/rpc.h"
#include "http/grpc.h"

/* A google.protobuf.FileDescriptorSet, from protos.S. */
extern const char protos_begin[];
extern const uint64_t protos_size;

/* Fields of FileDescriptorProto and what is in it. */
enum { SET_FILE = 1 };
enum { FILE_NAME = 1, FILE_PACKAGE = 2, FILE_MESSAGE = 4, FILE_ENUM = 5, FILE_SERVICE = 6 };
enum { ANY_NAME = 1, MESSAGE_NESTED = 3, MESSAGE_ENUM = 4, SERVICE_METHOD = 2 };

/* ---- the files ---- */

static bool next_file(struct str *rest, struct str *file)
{
    struct rpc_field field;

    while (rpc_field_next(rest, &field) > 0)
        if (field.number == SET_FILE) {
            *file = field.bytes;
            return true;
        }
    return false;
}

static struct str text_of(struct str message, uint32_t number)
{
    struct rpc_field field;

    while (rpc_field_next(&message, &field) > 0)
        if (field.number == number)
            return field.bytes;
    return STR_NONE;
}

/* Takes "name." or "name" off the front of *symbol. 0: something else; 1: there is more; 2: all. */
static int take_name(struct str *symbol, struct str name)
{
    if (!name.n || !str_starts(*symbol, name))
        return 0;
    if (symbol->n == name.n)
        return 2;
    if (symbol->p[name.n] != '.')
        return 0;
    *symbol = str_from(*symbol, name.n + 1);
    return 1;
}

/* What a descriptor of one kind holds that has a name of its own, two levels are all there are. */
static bool holds(struct str descriptor, struct str symbol, const uint32_t *kinds)
{
    struct rpc_field field;

    while (rpc_field_next(&descriptor, &field) > 0)
        for (const uint32_t *kind = kinds; *kind; kind++)
            if (field.number == *kind && str_eq(text_of(field.bytes, ANY_NAME), symbol))
                return true;
    return false;
}

static bool file_has(struct str file, struct str symbol)
{
    static const uint32_t in_message[] = { MESSAGE_NESTED, MESSAGE_ENUM, 0 };
    static const uint32_t in_service[] = { SERVICE_METHOD, 0 };
    struct rpc_field field;

    if (take_name(&symbol, text_of(file, FILE_PACKAGE)) != 1)
        return false;
    while (rpc_field_next(&file, &field) > 0) {
        struct str below = symbol;

        if (field.number != FILE_MESSAGE && field.number != FILE_ENUM &&
            field.number != FILE_SERVICE)
            continue;
        int rc = take_name(&below, text_of(field.bytes, ANY_NAME));
        if (rc == 2)
            return true;
        if (rc == 1 && field.number != FILE_ENUM &&
            holds(field.bytes, below, field.number == FILE_SERVICE ? in_service : in_message))
            return true;
    }
    return false;
}

static bool file_is(struct str file, struct str name)
{
    return str_eq(text_of(file, FILE_NAME), name);
}

static struct str find_file(bool (*fits)(struct str file, struct str what), const char *what)
{
    struct str rest = { protos_begin, protos_size }, file;

    while (next_file(&rest, &file))
        if (fits(file, (struct str){ what, strlen(what) }))
            return file;
    return STR_NONE;
}

/* ---- answers ---- */

typedef Grpc__Reflection__V1__ServerReflectionRequest request_t;
typedef Grpc__Reflection__V1__ServerReflectionResponse response_t;
#define ASKS(what) GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_##what
#define TELLS(what) GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_##what

static enum http_flow answer_error(struct rpc *rpc, response_t reply, int code, const char *text)
{
    Grpc__Reflection__V1__ErrorResponse error = GRPC__REFLECTION__V1__ERROR_RESPONSE__INIT;

    error.error_code = code;
    error.error_message = (char *)text;
    reply.message_response_case = TELLS(ERROR_RESPONSE);
    reply.error_response = &error;
    return rpc_send(rpc, &reply.base);
}

static enum http_flow answer_file(struct rpc *rpc, response_t reply, struct str file)
{
    Grpc__Reflection__V1__FileDescriptorResponse files =
        GRPC__REFLECTION__V1__FILE_DESCRIPTOR_RESPONSE__INIT;
    ProtobufCBinaryData bytes = { file.n, (uint8_t *)file.p };

    if (!file.p)
        return answer_error(rpc, reply, GRPC_NOT_FOUND, "not found");
    files.n_file_descriptor_proto = 1; /* none of ours imports another */
    files.file_descriptor_proto = &bytes;
    reply.message_response_case = TELLS(FILE_DESCRIPTOR_RESPONSE);
    reply.file_descriptor_response = &files;
    return rpc_send(rpc, &reply.base);
}

struct listing {
    struct arena *arena;
    Grpc__Reflection__V1__ListServiceResponse list;
};

#define SERVICES_MAX 32

static void list_one(void *ctx, struct str service)
{
    struct listing *listing = ctx;
    Grpc__Reflection__V1__ServiceResponse *item;

    /* The older name of this service is there for older clients, and described by the newer. */
    if (str_is(service, "grpc.reflection.v1alpha.ServerReflection") ||
        listing->list.n_service == SERVICES_MAX)
        return;
    item = arena_new(listing->arena, Grpc__Reflection__V1__ServiceResponse);
    grpc__reflection__v1__service_response__init(item);
    item->name = arena_memdup0(listing->arena, service.p, service.n);
    listing->list.service[listing->list.n_service++] = item;
}

static enum http_flow answer_list(struct rpc *rpc, response_t reply)
{
    autoarena struct arena arena = { 0 };
    struct listing listing = { &arena, GRPC__REFLECTION__V1__LIST_SERVICE_RESPONSE__INIT };

    listing.list.service = arena_alloc(&arena, SERVICES_MAX * sizeof(*listing.list.service));
    rpc_services(list_one, &listing);
    reply.message_response_case = TELLS(LIST_SERVICES_RESPONSE);
    reply.list_services_response = &listing.list;
    return rpc_send(rpc, &reply.base);
}

static enum http_flow answer(struct rpc *rpc, request_t *request)
{
    response_t reply = GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT;

    reply.valid_host = request->host;
    reply.original_request = request;
    switch (request->message_request_case) {
    case ASKS(FILE_BY_FILENAME):
        return answer_file(rpc, reply, find_file(file_is, request->file_by_filename));
    case ASKS(FILE_CONTAINING_SYMBOL):
        return answer_file(rpc, reply, find_file(file_has, request->file_containing_symbol));
    case ASKS(LIST_SERVICES):
        return answer_list(rpc, reply);
    case ASKS(FILE_CONTAINING_EXTENSION):
    case ASKS(ALL_EXTENSION_NUMBERS_OF_TYPE):
        return answer_error(rpc, reply, GRPC_NOT_FOUND, "proto3 has no extensions");
    default:
        return answer_error(rpc, reply, GRPC_INVALID_ARGUMENT, "no question was asked");
    }
}

static int info(struct rpc *rpc, ProtobufCMessage *message, struct err *err)
{
    if (!message) {
        rpc_finish(rpc, NULL);
        return 0;
    }
    if (rpc->call->arena.total > RPC_STREAM_BYTES_MAX)
        return err_set(err, ERR_LIMIT, "too many questions in one call");
    if (answer(rpc, (request_t *)message) == HTTP_FULL)
        rpc_pause(rpc); /* who asks on must read the answers */
    return 0;
}

static const struct rpc_method method = {
    .takes = &grpc__reflection__v1__server_reflection_request__descriptor,
    .gives = &grpc__reflection__v1__server_reflection_response__descriptor,
    .fn = info,
    .streams_in = true,
    .streams_out = true,
};

const struct route rpc_reflection_routes[] = {
    RPC_ROUTE("grpc.reflection.v1.ServerReflection", "ServerReflectionInfo", "grpc.reflect",
              ROLE_ANY, &method),
    RPC_ROUTE("grpc.reflection.v1alpha.ServerReflection", "ServerReflectionInfo", "grpc.reflect",
              ROLE_ANY, &method),
    { 0 },
};
