/*
 * own - the bytes of a compiled policy. Numbers are in the order of the machine: writer and reader
 * are two processes of one program. Nothing is aligned for the reader, who copies records out.
 *
 *     head · rules[rule_count] · buckets[bucket_count] (u32: index of a rule + 1, 0 is none) ·
 * texts
 *
 * Rules of one bucket are a chain by `next` towards smaller indexes, so a chain always ends.
 */
#pragma once

#include <assert.h>

#include "policy/policy.h"

#define POLICY_MAGIC 0x50544c41u /* "ALTP" */
#define POLICY_FORMAT 1

struct policy_head {
    uint32_t magic;
    uint16_t format;
    uint8_t mode, mode_level, mode_said, zero[3];
    uint32_t ask_s;
    uint64_t version, max_bytes;
    uint32_t max_connections, rule_count, bucket_count, texts_len;
    uint64_t prefixes4, prefixes6[3];
};
static_assert(sizeof(struct policy_head) == 80, "the head of a policy has no holes");

enum policy_list { LIST_ALLOW, LIST_DENY, LIST_INTERCEPT, LIST_UNCHECKED, LISTS };
enum policy_ports {
    PORTS_WEB,
    PORTS_ONE,
    PORTS_ANY,
    PORTS_ONE_RAW, /* any bytes may be sent to this port */
    PORTS_ANY_RAW,
    PORTS_KINDS
};

struct policy_record {
    uint32_t next, hash;
    uint32_t name_at, text_at, path_at, pack_at; /* in texts */
    uint16_t name_len, text_len, path_len, port;
    uint8_t pack_len, kind, list, level, ports, methods, prefix, family;
    uint8_t addr[16];
};
static_assert(sizeof(struct policy_record) == 56, "a rule of a policy has no holes");

/* Names are hashed from their end, so that one walk passes every suffix. */
#define POLICY_HASH_START 2166136261u
static inline uint32_t policy_hash_step(uint32_t hash, unsigned char byte)
{
    return (hash ^ byte) * 16777619u;
}

/* Of what was walked so far: as the name itself, or as what stands behind a wildcard. */
static inline uint32_t policy_hash_end(uint32_t hash, enum rule_kind kind)
{
    hash = (hash ^ (kind == RULE_TREE ? RULE_SUFFIX : kind)) * 0x85ebca6bu;
    hash ^= hash >> 15;
    hash *= 0xc2b2ae35u;
    return hash ^ hash >> 13;
}

static inline uint32_t policy_hash_addr(const struct addr *addr, unsigned prefix)
{
    uint32_t hash = policy_hash_step(POLICY_HASH_START, (unsigned char)prefix);
    unsigned bytes = (prefix + 7) / 8;

    hash = policy_hash_step(hash, addr->family);
    for (unsigned i = 0; i < bytes; i++) {
        unsigned bits = prefix - i * 8;

        hash = policy_hash_step(
            hash, (unsigned char)(addr->bytes[i] & (bits >= 8 ? 0xff : 0xff00 >> bits)));
    }
    return policy_hash_end(hash, RULE_ADDR);
}

static inline struct policy_record policy_record(const struct policy *policy, uint32_t at)
{
    struct policy_record record;

    memcpy(&record, policy->rules + (size_t)at * sizeof(record), sizeof(record));
    return record;
}

static inline struct str policy_text(const struct policy *policy, uint32_t at, uint32_t len)
{
    return (struct str){ (const char *)policy->texts + at, len };
}
