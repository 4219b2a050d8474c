/*
 * Lines in, a compiled policy out: "allow RULE", "deny RULE", "unchecked RULE", "intercept RULE",
 * "mode open", "max_bytes N", "max_connections N". What tests of the egress process give it in
 * place of the api process.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "policy/policy.h"

#define LINES_MAX 64

struct lines {
    const char *items[LINES_MAX + 1];
    size_t count;
};

static void add(struct lines *lines, const char *text)
{
    if (lines->count == LINES_MAX)
        exit(2);
    lines->items[lines->count++] = strdup(text);
}

int main(int argc, char **argv)
{
    struct lines allow = { 0 }, deny = { 0 }, unchecked = { 0 }, intercept = { 0 };
    struct policy_layer layers[LEVELS] = { 0 };
    struct policy_layer *layer = &layers[LEVEL_SANDBOX];
    struct buf out = { 0 };
    struct err err = { 0 };
    char line[1024];

    mem_untraced(); /* what ends at once gives nothing back */
    while (fgets(line, sizeof(line), stdin)) {
        line[strcspn(line, "\n")] = 0;
        if (strncmp(line, "allow ", 6) == 0)
            add(&allow, line + 6);
        else if (strncmp(line, "intercept ", 10) == 0)
            add(&intercept, line + 10);
        else if (strncmp(line, "deny ", 5) == 0)
            add(&deny, line + 5);
        else if (strncmp(line, "unchecked ", 10) == 0)
            add(&unchecked, line + 10);
        else if (strncmp(line, "max_bytes ", 10) == 0)
            layer->max_bytes = strtoull(line + 10, NULL, 10);
        else if (strncmp(line, "max_connections ", 16) == 0)
            layer->max_connections = (uint32_t)strtoul(line + 16, NULL, 10);
        else if (strcmp(line, "mode open") == 0)
            layer->mode = POLICY_MODE_OPEN;
        else if (strcmp(line, "mode ask") == 0)
            layer->mode = POLICY_MODE_ASK;
        else
            return 2;
    }
    layer->present = true;
    layer->allow = allow.items;
    layer->deny = deny.items;
    layer->intercept = intercept.items;
    layer->unchecked = unchecked.items;
    if (policy_compile(layers, argc > 1 ? strtoull(argv[1], NULL, 10) : 1, &out, &err) < 0) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    return write(1, out.data, out.len) == (ssize_t)out.len ? 0 : 1;
}
