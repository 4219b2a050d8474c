/*
 * Settings as one JSON object: {"listen": {"from": "flag", "where": "--listen", "value": "a,b"}}.
 * All settings are packed, computed defaults too, because the jailed process that unpacks them has
 * another user and no home. Values go through conf_set again, so a packed text is checked like any
 * other.
 */
#include "base/json.h"
#include "base/limits.h"
#include "base/mem.h"
#include "conf/conf.h"

void conf_pack(const struct conf *conf, struct buf *out)
{
    struct json_out json = json_to(out);

    json_open(&json, '{');
    for (const struct conf_key *key = conf_table; key->name; key++) {
        const char *where, *value = conf_text(conf, key->name);
        enum conf_source source = conf_source(conf, key->name, &where);

        if (!value[0] && key->type != CONF_LIST)
            continue; /* unset */
        json_key(&json, key->name);
        json_open(&json, '{');
        json_kv_text(&json, "from", conf_source_name(source));
        json_kv_text(&json, "where", where);
        json_kv_text(&json, "value", value);
        json_close(&json, '}');
    }
    json_close(&json, '}');
}

static bool source_parse(struct str name, enum conf_source *out)
{
    for (int i = 0; i < CONF_SOURCES; i++)
        if (str_is(name, conf_source_name((enum conf_source)i))) {
            *out = (enum conf_source)i;
            return true;
        }
    return false;
}

static int unpack_one(struct conf *conf, const struct json *member, struct err *err)
{
    const struct json *value = json_get(member, "value"), *where = json_get(member, "where");
    enum conf_source source;

    if (!value || value->type != JSON_STRING || !where || where->type != JSON_STRING ||
        !source_parse(json_text(member, "from"), &source))
        return err_set(err, ERR_INVALID, "packed settings: '%.*s' is incomplete",
                       STR_FMT(member->key));
    autofree char *name = xmemdup0(member->key.p, member->key.n);
    autofree char *text = xmemdup0(value->text.p, value->text.n);
    autofree char *from = xmemdup0(where->text.p, where->text.n);
    return conf_set(conf, source, name, text, from, err);
}

int conf_unpack(struct conf *conf, struct str packed, struct err *err)
{
    autoarena struct arena arena = { 0 };
    struct json *root;

    if (packed.n > CONF_FILE_MAX)
        return err_set(err, ERR_LIMIT, "packed settings are longer than %d bytes", CONF_FILE_MAX);
    if (json_parse(&arena, packed, &root, err) < 0)
        return err_wrap(err, "packed settings");
    if (root->type != JSON_OBJECT)
        return err_set(err, ERR_INVALID, "packed settings are no object");
    json_each(member, root) if (unpack_one(conf, member, err) < 0) return -1;
    return 0;
}
