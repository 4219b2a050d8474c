/*
 * Passes: leave to see one port of one sandbox, for a browser that shows it under a host name of
 * its own, where the dashboard's cookie does not go. Not a secret that is kept: a text that says
 * until when and on whose behalf, and a MAC over all it is good for. The key lives as long as the
 * process, so that a copy of the store makes no passes; whose token or session ends, their passes
 * end with it.
 */
#include "auth/own.h"

#include <stdio.h>

#include "base/clock.h"

static void sign(const struct auth *auth, const struct pass *pass, struct str who,
                 char out[SHA256_HEX_SIZE])
{
    autobuf struct buf text = { 0 };
    unsigned char mac[SHA256_SIZE];

    buf_printf(&text, "atoll-pass-v1\n%c\n%s\n%u\n%lld\n", (char)pass->kind, pass->sandbox,
               pass->port, (long long)pass->expires_ms);
    buf_str(&text, who);
    hmac_sha256((struct str){ (const char *)auth->pass_key, sizeof(auth->pass_key) },
                buf_view(&text), mac);
    hex_text(mac, sizeof(mac), out);
}

void auth_pass_make(const struct auth *auth, const struct pass *pass, const struct principal *who,
                    char out[PASS_TEXT_SIZE])
{
    char mac[SHA256_HEX_SIZE];

    sign(auth, pass, str_of(who->id), mac);
    snprintf(out, PASS_TEXT_SIZE, "%lld.%s.%s", (long long)pass->expires_ms, mac, who->id);
}

/* Who is it today? Whoever has ended is nobody. */
static bool revive(const struct auth *auth, struct str id, struct principal *who)
{
    char text[ID_SIZE];

    if (id.n >= sizeof(text))
        return false;
    memcpy(text, id.p, id.n);
    text[id.n] = 0;
    const struct live *live = live_by_id(&auth->tokens, text, auth->wall_ms());
    if (!live)
        live = live_by_id(&auth->sessions, text, auth->wall_ms());
    if (live) {
        *who = live->who;
        return true;
    }
    /* Those have no row: the MAC says that they were let in, by a socket or an open door. */
    bool local = str_starts(id, STR("unix:"));
    if (!local && !(str_is(id, "open") && auth->options.open))
        return false;
    *who = (struct principal){ .role = ROLE_ADMIN,
                               .tenant = TENANT_OWNER,
                               .via = local ? VIA_UNIX : VIA_OPEN };
    memcpy(who->id, text, id.n + 1);
    memcpy(who->name, text, id.n + 1);
    return true;
}

int auth_pass_check(const struct auth *auth, const struct pass *pass, struct str text,
                    struct principal *who, struct err *err)
{
    struct str id = text, until = str_cut(&id, '.'), mac = str_cut(&id, '.');
    struct pass said = *pass;
    char want[SHA256_HEX_SIZE];

    if (str_to_i64(until, &said.expires_ms) && mac.n == SHA256_HEX_SIZE - 1) {
        sign(auth, &said, id, want);
        if (secret_eq(want, mac.p, mac.n) && said.expires_ms > auth->wall_ms() &&
            revive(auth, id, who))
            return 0;
    }
    return err_set(err, ERR_UNAUTHENTICATED, "the pass is not valid, or not any more");
}
