/*
 * Bytes to a view. Everything that a decision will follow is checked here once: sizes add up, texts
 * lie in the texts, chains go towards smaller indexes, numbers name something. What the rules mean
 * is the writer's affair.
 */
#include "policy/own.h"

static const unsigned char no_bucket[4];

const struct policy policy_none = { .bytes = no_bucket,
                                    .mode = POLICY_MODE_DENY,
                                    .ask_s = EGRESS_ASK_S,
                                    .rules = no_bucket,
                                    .buckets = no_bucket,
                                    .texts = no_bucket };

static bool head_ok(const struct policy_head *head, size_t len)
{
    uint64_t want = sizeof(*head) + (uint64_t)head->rule_count * sizeof(struct policy_record) +
                    (uint64_t)head->bucket_count * sizeof(uint32_t) + head->texts_len;

    return head->magic == POLICY_MAGIC && head->format == POLICY_FORMAT &&
           head->mode >= POLICY_MODE_DENY && head->mode <= POLICY_MODE_OPEN &&
           head->mode_level < LEVELS && head->rule_count <= POLICY_RULES_MAX &&
           head->bucket_count > 0 && (head->bucket_count & (head->bucket_count - 1)) == 0 &&
           head->ask_s <= EGRESS_ASK_MAX_S && want == len;
}

static bool text_ok(const struct policy_head *head, uint32_t at, uint32_t len)
{
    return at <= head->texts_len && len <= head->texts_len - at;
}

static bool record_ok(const struct policy_head *head, const struct policy_record *r, uint32_t at)
{
    unsigned bits = r->family == 4 ? 32 : 128;

    return r->next <= at && text_ok(head, r->name_at, r->name_len) &&
           text_ok(head, r->text_at, r->text_len) && text_ok(head, r->path_at, r->path_len) &&
           text_ok(head, r->pack_at, r->pack_len) && r->kind < RULE_KINDS && r->list < LISTS &&
           r->level < LEVELS && r->ports < PORTS_KINDS &&
           (r->kind != RULE_ADDR || ((r->family == 4 || r->family == 6) && r->prefix <= bits));
}

int policy_open(struct policy *out, const void *bytes, size_t len, struct err *err)
{
    struct policy policy = { .bytes = bytes, .len = len };
    struct policy_head head;

    if (len < sizeof(head) || len > POLICY_BYTES_MAX)
        return err_set(err, ERR_INVALID, "not a policy: its size");
    memcpy(&head, bytes, sizeof(head));
    if (!head_ok(&head, len))
        return err_set(err, ERR_INVALID, "not a policy: its head");
    policy.rules = policy.bytes + sizeof(head);
    policy.buckets = policy.rules + (size_t)head.rule_count * sizeof(struct policy_record);
    policy.texts = policy.buckets + (size_t)head.bucket_count * sizeof(uint32_t);
    for (uint32_t i = 0; i < head.rule_count; i++) {
        struct policy_record record = policy_record(&policy, i);

        if (!record_ok(&head, &record, i))
            return err_set(err, ERR_INVALID, "not a policy: rule %u", i);
    }
    for (uint32_t i = 0; i < head.bucket_count; i++) {
        uint32_t first;

        memcpy(&first, policy.buckets + (size_t)i * sizeof(first), sizeof(first));
        if (first > head.rule_count)
            return err_set(err, ERR_INVALID, "not a policy: bucket %u", i);
    }
    policy.version = head.version;
    policy.mode = (enum policy_mode)head.mode;
    policy.mode_level = (enum policy_level)head.mode_level;
    policy.mode_said = head.mode_said != 0;
    policy.max_bytes = head.max_bytes;
    policy.max_connections = head.max_connections;
    policy.ask_s = head.ask_s;
    policy.rule_count = head.rule_count;
    policy.bucket_mask = head.bucket_count - 1;
    policy.prefixes4 = head.prefixes4 & ((1ull << 33) - 1);
    policy.prefixes6[0] = head.prefixes6[0];
    policy.prefixes6[1] = head.prefixes6[1];
    policy.prefixes6[2] = head.prefixes6[2] & 1;
    *out = policy;
    return 0;
}

struct policy_rule policy_rule_at(const struct policy *policy, uint32_t at)
{
    static const char *const lists[LISTS] = { "allow", "deny", "intercept", "unchecked" };
    struct policy_record record = policy_record(policy, at);

    return (struct policy_rule){ .level = (enum policy_level)record.level,
                                 .list = lists[record.list],
                                 .text = policy_text(policy, record.text_at, record.text_len),
                                 .pack = policy_text(policy, record.pack_at, record.pack_len) };
}

bool policy_intercepts(const struct policy *policy)
{
    for (uint32_t i = 0; i < policy->rule_count; i++)
        if (policy_record(policy, i).list == LIST_INTERCEPT)
            return true;
    return false;
}
