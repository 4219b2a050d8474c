/*
 * Messages of remote calls from anybody. The first byte chooses the message and whether the rest is
 * JSON. What is read must be written and read again without a difference, in both forms.
 */
#include <agentic/sandbox/v1/agent.pb-c.h>
#include <grpc/reflection/v1/reflection.pb-c.h>
#include <sandbox/v1/sandbox.pb-c.h>
#include <stdlib.h>

#include "api/rpc_codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const ProtobufCMessageDescriptor *const types[] = {
    &sandbox__v1__create_session_request__descriptor,
    &sandbox__v1__exec_request__descriptor,
    &sandbox__v1__exec_response__descriptor,
    &sandbox__v1__exec_stream_response__descriptor,
    &sandbox__v1__write_file_request__descriptor,
    &sandbox__v1__read_file_request__descriptor,
    &sandbox__v1__read_file_response__descriptor,
    &sandbox__v1__pip_install_request__descriptor,
    &sandbox__v1__list_sessions_response__descriptor,
    &grpc__reflection__v1__server_reflection_request__descriptor,
    &grpc__reflection__v1__server_reflection_response__descriptor,
    &agentic__sandbox__v1__agent_message__descriptor, /* has maps */
    &agentic__sandbox__v1__exec_request__descriptor,
};

static void same(struct buf *a, struct buf *b)
{
    if (!str_eq(buf_view(a), buf_view(b)))
        abort();
}

static void check(const ProtobufCMessageDescriptor *type, const ProtobufCMessage *message,
                  struct arena *arena)
{
    autobuf struct buf bytes = { 0 }, again = { 0 }, json = { 0 }, json_again = { 0 };
    ProtobufCMessage *copy;
    struct err err = { 0 };

    rpc_encode(message, &bytes);
    if (rpc_decode(type, buf_view(&bytes), arena, &copy, &err) < 0)
        abort();
    rpc_encode(copy, &again);
    same(&bytes, &again);
    rpc_json_encode(message, &json);
    if (rpc_json_decode(type, buf_view(&json), arena, &copy, &err) < 0)
        abort();
    rpc_json_encode(copy, &json_again);
    same(&json, &json_again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    autoarena struct arena arena = { 0 };
    ProtobufCMessage *message;
    struct err err = { 0 };

    if (size < 1)
        return 0;
    const ProtobufCMessageDescriptor *type = types[data[0] % 128 % ARRAY_LEN(types)];
    struct str text = { (const char *)data + 1, size - 1 };
    int rc = data[0] >= 128 ? rpc_json_decode(type, text, &arena, &message, &err)
                            : rpc_decode(type, text, &arena, &message, &err);
    if (rc == 0)
        check(type, message, &arena);
    else if (!err.code)
        abort();
    return 0;
}
