/*
 * Any bytes as credentials, and any bytes as head and claims of a token that is signed. Nobody
 * without the key gets anything, and what a token gives is a policy that opens.
 */
#include "policy/grant.h"

#include <stdlib.h>

#include "base/hash.h"
#include "policy/policy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct grant_terms terms = { STR_INIT("a key that nobody guesses"), 1000000,
                                          GRANT_LIFE_S };

static void try_signed(struct str head, struct str body)
{
    autobuf struct buf token = { 0 };
    unsigned char mac[SHA256_SIZE];
    struct grant grant = { 0 };
    struct policy policy;

    base64url_put(&token, head.p, head.n);
    buf_putc(&token, '.');
    base64url_put(&token, body.p, body.n);
    hmac_sha256(terms.key, buf_view(&token), mac);
    buf_putc(&token, '.');
    base64url_put(&token, mac, sizeof(mac));
    autobuf struct buf value = { 0 };
    buf_puts(&value, "Bearer ");
    buf_str(&value, buf_view(&token));
    if (grant_read(buf_view(&value), &terms, &grant, NULL) < 0)
        return;
    if (policy_open(&policy, grant.policy.data, grant.policy.len, NULL) < 0 ||
        policy.mode != POLICY_MODE_DENY || grant.ends_s <= terms.now_s ||
        grant.ends_s > terms.now_s + terms.life_s || !grant.session[0])
        abort();
    grant_free(&grant);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str all = { (const char *)data, size }, rest = all;
    struct grant grant = { 0 };

    if (grant_read(all, &terms, &grant, NULL) == 0)
        abort();
    try_signed(str_cut(&rest, '\n'), rest);
    try_signed(STR("{\"alg\":\"HS256\"}"), all);
    return 0;
}
