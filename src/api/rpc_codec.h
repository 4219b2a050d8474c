/*
 * rpc_codec - messages of remote calls, in and out, as protobuf and as JSON; by the descriptors
 * that protobuf-c generated from proto/.
 *
 * What comes in is hostile. It is walked over before protobuf-c sees it: well-formed fields, at
 * most RPC_FIELDS_MAX of them and RPC_DEPTH_MAX messages inside one another, texts that are UTF-8
 * and hold no NUL (they become C strings). Fields that the descriptor does not know are skipped in
 * protobuf and refused in JSON, where they are mostly misspelt. Everything read lives in the arena.
 */
#pragma once

#include <protobuf-c/protobuf-c.h>

#include "base/json.h"

/* One field as it lies on the wire; `value` of numbers, `bytes` of the rest. */
struct rpc_field {
    uint32_t number;
    uint32_t wire; /* ProtobufCWireType */
    uint64_t value;
    struct str bytes;
};

/* Takes the next field off *rest: 1, 0 at the end, -1 when it is none. */
must_use int rpc_field_next(struct str *rest, struct rpc_field *out);

/* A message with every field at its default. */
ProtobufCMessage *rpc_message(const ProtobufCMessageDescriptor *type, struct arena *arena);

must_use int rpc_decode(const ProtobufCMessageDescriptor *type, struct str bytes,
                        struct arena *arena, ProtobufCMessage **out, struct err *err);
void rpc_encode(const ProtobufCMessage *message, struct buf *out);

/* The JSON of proto3: lowerCamelCase (names as in the .proto are read too), 64-bit numbers as
 * strings, bytes as base64, enums by name. */
must_use int rpc_json_decode(const ProtobufCMessageDescriptor *type, struct str text,
                             struct arena *arena, ProtobufCMessage **out, struct err *err);
/* Fields without presence that have their default are left out. */
void rpc_json_encode(const ProtobufCMessage *message, struct buf *out);

/* Sets a field that is `optional` in the .proto (see the Makefile); `number` is the field's. */
#define RPC_SET(message, field, number, value)                                                     \
    ((message)->field##_is_case = (number), (message)->field = (value))
