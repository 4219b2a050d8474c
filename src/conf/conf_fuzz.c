/*
 * Any bytes as a settings file. What is accepted must read back: each number inside its range's
 * type, and every setting the same after a walk through conf_set.
 */
#include "base/mem.h"
#include "conf/conf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct conf *conf = conf_new(), *again = conf_new();
    struct err err = { 0 };

    if (conf_parse(conf, (struct str){ (const char *)data, size }, "f", &err) < 0) {
        if (!err.msg[0] || !err.code)
            abort();
    } else {
        for (const struct conf_key *key = conf_table; key->name; key++) {
            const char *where, *value = conf_text(conf, key->name);

            if (conf_source(conf, key->name, &where) != CONF_FILE)
                continue;
            if (conf_set(again, CONF_FILE, key->name, value, where, &err) < 0 ||
                !conf_same(conf, again, key->name) ||
                conf_int(conf, key->name) != conf_int(again, key->name))
                abort();
        }
        (void)!conf_check(conf, &err);
    }
    conf_free(conf);
    conf_free(again);
    return 0;
}
