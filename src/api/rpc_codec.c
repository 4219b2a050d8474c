/*
 * Protobuf. protobuf-c reads fields into an array of its own before it fills the message, about
 * fifty bytes for each field of two bytes, and does not look at what is in a text; so all that it
 * must be able to rely on is checked here first, without recursion.
 */
#include "api/rpc_codec.h"

#include <stdlib.h>

#include "base/limits.h"

#define NUMBER_MAX 536870911u /* 2^29 - 1 */

/* ---- the wire ---- */

static bool take_varint(struct str *rest, uint64_t *out)
{
    uint64_t value = 0;

    for (size_t i = 0; i < 10 && i < rest->n; i++) {
        unsigned char c = (unsigned char)rest->p[i];

        if (i == 9 && c > 1)
            return false; /* more than 64 bits */
        value |= (uint64_t)(c & 127) << (7 * i);
        if (c < 128) {
            *rest = str_from(*rest, i + 1);
            *out = value;
            return true;
        }
    }
    return false;
}

static bool take_bytes(struct str *rest, uint64_t len, struct str *out)
{
    if (len > rest->n)
        return false;
    *out = (struct str){ rest->p, (size_t)len };
    *rest = str_from(*rest, (size_t)len);
    return true;
}

int rpc_field_next(struct str *rest, struct rpc_field *out)
{
    uint64_t tag, len;

    if (!rest->n)
        return 0;
    if (!take_varint(rest, &tag) || tag >> 3 == 0 || tag >> 3 > NUMBER_MAX)
        return -1;
    *out = (struct rpc_field){ .number = (uint32_t)(tag >> 3), .wire = (uint32_t)(tag & 7) };
    switch (out->wire) {
    case PROTOBUF_C_WIRE_TYPE_VARINT:
        return take_varint(rest, &out->value) ? 1 : -1;
    case PROTOBUF_C_WIRE_TYPE_64BIT:
        return take_bytes(rest, 8, &out->bytes) ? 1 : -1;
    case PROTOBUF_C_WIRE_TYPE_32BIT:
        return take_bytes(rest, 4, &out->bytes) ? 1 : -1;
    case PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED:
        return take_varint(rest, &len) && take_bytes(rest, len, &out->bytes) ? 1 : -1;
    default:
        return -1; /* groups are long gone */
    }
}

/* ---- before protobuf-c reads it ---- */

struct level {
    const ProtobufCMessageDescriptor *type;
    struct str rest;
};

static int check_text(const ProtobufCMessageDescriptor *type, const ProtobufCFieldDescriptor *field,
                      struct str text, struct err *err)
{
    if (!str_utf8(text))
        return err_field(err, field->name, "%s of %s is not UTF-8", field->name, type->name);
    if (str_has_nul(text))
        return err_field(err, field->name, "%s of %s holds a NUL", field->name, type->name);
    return 0;
}

/* 1: `down` is the message inside that is to be looked at next. */
static int check_field(const struct level *level, const struct rpc_field *seen, struct level *down,
                       struct err *err)
{
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field(level->type, seen->number);

    if (!field || seen->wire != PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED)
        return 0;
    if (field->type == PROTOBUF_C_TYPE_STRING)
        return check_text(level->type, field, seen->bytes, err);
    if (field->type != PROTOBUF_C_TYPE_MESSAGE)
        return 0;
    *down = (struct level){ field->descriptor, seen->bytes };
    return 1;
}

static int check(const ProtobufCMessageDescriptor *type, struct str bytes, struct err *err)
{
    struct level levels[RPC_DEPTH_MAX] = { { type, bytes } };
    unsigned depth = 1, count = 0;

    while (depth) {
        struct level *level = &levels[depth - 1], down;
        struct rpc_field seen;
        int rc = rpc_field_next(&level->rest, &seen);

        if (rc < 0)
            return err_set(err, ERR_INVALID, "the bytes are no %s", type->name);
        if (rc == 0) {
            depth--;
            continue;
        }
        if (++count > RPC_FIELDS_MAX)
            return err_set(err, ERR_LIMIT, "a message of more than %d fields", RPC_FIELDS_MAX);
        rc = check_field(level, &seen, &down, err);
        if (rc < 0)
            return -1;
        if (rc == 0)
            continue;
        if (depth == RPC_DEPTH_MAX)
            return err_set(err, ERR_LIMIT, "more than %d messages inside one another",
                           RPC_DEPTH_MAX);
        levels[depth++] = down;
    }
    return 0;
}

/* ---- messages ---- */

static void *from_arena(void *arena, size_t size)
{
    return arena_alloc(arena, size);
}

static void to_arena(void *arena, void *pointer)
{
    (void)arena, (void)pointer; /* with all the rest */
}

ProtobufCMessage *rpc_message(const ProtobufCMessageDescriptor *type, struct arena *arena)
{
    ProtobufCMessage *message = arena_alloc(arena, type->sizeof_message);

    protobuf_c_message_init(type, message);
    return message;
}

int rpc_decode(const ProtobufCMessageDescriptor *type, struct str bytes, struct arena *arena,
               ProtobufCMessage **out, struct err *err)
{
    ProtobufCAllocator allocator = { from_arena, to_arena, arena };

    if (check(type, bytes, err) < 0)
        return -1;
    ProtobufCMessage *message =
        protobuf_c_message_unpack(type, &allocator, bytes.n, (const uint8_t *)bytes.p);
    if (!message)
        return err_set(err, ERR_INVALID, "the bytes are no %s", type->name);
    *out = message;
    return 0;
}

void rpc_encode(const ProtobufCMessage *message, struct buf *out)
{
    size_t size = protobuf_c_message_get_packed_size(message);
    char *room = buf_reserve(out, size);

    if (room)
        out->len += protobuf_c_message_pack(message, (uint8_t *)room);
}
