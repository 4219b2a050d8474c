/*
 * codec - the messages of remote calls as a program, for tests against other implementations. Each
 * line of input is hexadecimal, "b" or "j" before it: test.types.All as protobuf or as JSON. The
 * answer is the message as protobuf in hexadecimal, then as JSON; or "error" and why.
 */
#include <stdio.h>
#include <stdlib.h>
#include <types.pb-c.h>

#include "api/rpc_codec.h"
#include "base/hash.h"

static void answer(const char *line, size_t len)
{
    autoarena struct arena arena = { 0 };
    autobuf struct buf bytes = { 0 }, json = { 0 };
    const ProtobufCMessageDescriptor *type = &test__types__all__descriptor;
    ProtobufCMessage *message;
    struct err err = { 0 };
    size_t size = (len - 1) / 2;
    unsigned char *in = arena_alloc(&arena, size + 1);

    if (!hex_bytes((struct str){ line + 1, len - 1 }, in, size))
        abort();
    struct str text = { (char *)in, size };
    if ((line[0] == 'j' ? rpc_json_decode(type, text, &arena, &message, &err)
                        : rpc_decode(type, text, &arena, &message, &err)) < 0) {
        printf("error %s\n", err.msg);
        return;
    }
    rpc_encode(message, &bytes);
    rpc_json_encode(message, &json);
    char *hex = arena_alloc(&arena, bytes.len * 2 + 1);
    hex_text(bytes.data, bytes.len, hex);
    printf("%s %s\n", hex, buf_cstr(&json));
}

int main(void)
{
    autofree char *line = NULL;
    size_t room = 0;
    ssize_t len;

    while ((len = getline(&line, &room, stdin)) > 0) {
        answer(line, (size_t)len - (line[len - 1] == '\n'));
        fflush(stdout);
    }
    return 0;
}
