/* field: each type both ways, each refusal with the path it names, presence, and schemas. */
#include "model/field.h"

#include "base/test.h"

struct limits {
    int64_t memory;
    double cpu;
};

static const struct field limits_fields[] = {
    FIELD(limits, memory, F_INT, F_REQUIRED, .min = 1, .max = 1000, .help = "Bytes"),
    FIELD(limits, cpu, F_DOUBLE, 0, .min = 0, .max = 8),
    { 0 },
};

struct port {
    int64_t number;
    const char *protocol;
};

static const struct field port_fields[] = {
    FIELD(port, number, F_INT, F_REQUIRED, .min = 1, .max = 65535),
    FIELD(port, protocol, F_ENUM, 0, .choices = "tcp|udp"),
    { 0 },
};

struct spec {
    const char *id;
    const char *name;
    const char *mode;
    const char *free_text;
    int64_t any_int;
    int64_t below_zero;
    double ratio;
    bool tty;
    const char **argv;
    struct field_pair *env;
    struct limits *limits;
    struct field_list ports;
    const struct json *extra;
    const char *password;
    int64_t created_at;
    const bool *maybe;
};

static const struct field spec_fields[] = {
    FIELD(spec, id, F_STRING, F_READONLY | F_REQUIRED),
    FIELD(spec, name, F_STRING, F_REQUIRED, .min = 2, .max = 5, .help = "What it is for"),
    FIELD(spec, mode, F_ENUM, 0, .choices = "fast|slow|very slow"),
    FIELD(spec, free_text, F_STRING, 0),
    FIELD(spec, any_int, F_INT, 0),
    FIELD(spec, below_zero, F_INT, 0, .min = -5),
    FIELD(spec, ratio, F_DOUBLE, 0),
    FIELD(spec, tty, F_BOOL, 0),
    FIELD(spec, argv, F_STRINGS, 0, .min = 1, .max = 3),
    FIELD(spec, env, F_MAP, 0, .max = 2),
    FIELD(spec, limits, F_OBJECT, 0, .of = limits_fields, .of_size = sizeof(struct limits)),
    FIELD(spec, ports, F_LIST, 0, .of = port_fields, .of_size = sizeof(struct port), .max = 2),
    FIELD(spec, extra, F_JSON, 0),
    FIELD(spec, password, F_STRING, F_SECRET),
    FIELD(spec, created_at, F_TIME, 0),
    FIELD(spec, maybe, F_MAYBE, 0),
    { 0 },
};

static int decode(struct arena *arena, const char *text, struct spec *spec, uint64_t *present,
                  struct err *err)
{
    struct json *json;

    if (json_parse(arena, str_of(text), &json, err) < 0)
        test_fail(__FILE__, __LINE__, "%s: %s", text, err->msg);
    return field_decode(spec_fields, json, spec, arena, present, err);
}

/* What may be taken back, and what may only be left out. */
static const struct field change_fields[] = {
    FIELD(spec, limits, F_OBJECT, F_NULL, .of = limits_fields, .of_size = sizeof(struct limits)),
    FIELD(spec, name, F_STRING, 0),
    { 0 },
};

TEST(a_null_takes_back_where_it_may)
{
    autoarena struct arena arena = { 0 };
    struct json *json;
    struct limits before = { 0 };
    struct spec spec = { .limits = &before };
    uint64_t present = 0;
    struct err err;

    CHECK_OK(json_parse(&arena, STR("{\"limits\":null}"), &json, &err), &err);
    CHECK_OK(field_decode(change_fields, json, &spec, &arena, &present, &err), &err);
    CHECK(!spec.limits && present == 1);
    CHECK_OK(json_parse(&arena, STR("{\"name\":null}"), &json, &err), &err);
    CHECK(field_decode(change_fields, json, &spec, &arena, &present, &err) < 0);

    autobuf struct buf schema = { 0 };
    struct json_out out = json_to(&schema);
    field_schema(change_fields, true, &out);
    CHECK(strstr(buf_cstr(&schema), "\"limits\":{\"type\":[\"object\",\"null\"]") != NULL);
    CHECK(strstr(buf_cstr(&schema), "\"name\":{\"type\":\"string\"") != NULL);
}

TEST(every_type_is_read)
{
    autoarena struct arena arena = { 0 };
    struct spec spec = { 0 };
    struct err err = { 0 };
    uint64_t present = 0;

    CHECK_OK(
        decode(&arena,
               "{\"name\":\"n\xc3\xa9w\",\"mode\":\"very slow\",\"free_text\":\"\",\"any_int\":"
               "-9223372036854775808,\"below_zero\":-5,\"ratio\":3,\"tty\":true,\"argv\":[\"ls\","
               "\"-l\\n\"],\"env\":{\"A\":\"1\",\"B\":\"\"},\"limits\":{\"memory\":1000,\"cpu\":0."
               "5},\"ports\":[{\"number\":1},{\"number\":65535,\"protocol\":\"udp\"}],\"extra\":{"
               "\"x\":[null]},\"password\":\"pw\"}",
               &spec, &present, &err),
        &err);
    CHECK_STR(spec.name, "n\xc3\xa9w");
    CHECK_STR(spec.mode, "very slow");
    CHECK_STR(spec.free_text, "");
    CHECK(spec.any_int == INT64_MIN && spec.below_zero == -5 && spec.ratio == 3.0 && spec.tty);
    CHECK_STR(spec.argv[0], "ls");
    CHECK_STR(spec.argv[1], "-l\n");
    CHECK(!spec.argv[2]);
    CHECK_STR(spec.env[0].key, "A");
    CHECK_STR(spec.env[1].value, "");
    CHECK(!spec.env[2].key);
    CHECK(spec.limits->memory == 1000 && spec.limits->cpu == 0.5);
    const struct port *ports = spec.ports.items;
    CHECK(spec.ports.count == 2 && ports[0].number == 1 && !ports[0].protocol);
    CHECK_STR(ports[1].protocol, "udp");
    CHECK(json_get(spec.extra, "x")->first->type == JSON_NULL);
    CHECK_INT(present, 0x3ffe); /* all but the read-only id and the time */
}

TEST(presence_tells_zero_from_not_given)
{
    autoarena struct arena arena = { 0 };
    struct spec spec = { 0 };
    struct err err = { 0 };
    uint64_t present = ~0ull;

    CHECK_OK(decode(&arena, "{\"name\":\"ab\",\"tty\":false,\"any_int\":0}", &spec, &present, &err),
             &err);
    CHECK_INT(present, 1 << 1 | 1 << 4 | 1 << 7);
    CHECK(!spec.argv && !spec.env && !spec.limits && spec.ports.count == 0 && !spec.extra);
    CHECK_OK(decode(&arena, "{\"name\":\"ab\"}", &spec, NULL, &err), &err);
}

TEST(a_maybe_tells_no_from_unsaid)
{
    autoarena struct arena arena = { 0 };
    struct spec unsaid = { 0 }, no = { 0 }, yes = { 0 };
    struct err err = { 0 };

    CHECK_OK(decode(&arena, "{\"name\":\"ab\"}", &unsaid, NULL, &err), &err);
    CHECK_OK(decode(&arena, "{\"name\":\"ab\",\"maybe\":false}", &no, NULL, &err), &err);
    CHECK_OK(decode(&arena, "{\"name\":\"ab\",\"maybe\":true}", &yes, NULL, &err), &err);
    CHECK(!unsaid.maybe && no.maybe && !*no.maybe && yes.maybe && *yes.maybe);
}

struct refusal {
    const char *text, *field, *why;
};

static const struct refusal refusals[] = {
    /* the object itself */
    { "[]", "", "must be an object, not array" },
    { "null", "", "must be an object, not null" },
    { "\"x\"", "", "must be an object, not string" },
    { "{}", "name", "required" },
    /* unknown, and what only the server sets */
    { "{\"name\":\"ab\",\"colour\":1}", "colour", "unknown field" },
    { "{\"name\":\"ab\",\"Name\":\"ab\"}", "Name", "unknown field; did you mean name?" },
    { "{\"nmae\":\"ab\"}", "nmae", "unknown field; did you mean name?" },
    { "{\"name\":\"ab\",\"\":1}", "", "unknown field" },
    { "{\"name\":\"ab\",\"id\":\"x\"}", "id", "unknown field" },
    { "{\"name\":\"ab\",\"created_at\":1}", "created_at", "unknown field" },
    { "{\"name\":\"ab\",\"limits\":{\"memory\":1,\"disk\":1}}", "limits.disk", "unknown field" },
    /* strings */
    { "{\"name\":1}", "name", "must be a string, not integer" },
    { "{\"name\":null}", "name", "must be a string, not null" },
    { "{\"name\":[\"ab\"]}", "name", "must be a string, not array" },
    { "{\"name\":\"\"}", "name", "must not be empty" },
    { "{\"name\":\"a\"}", "name", "at least 2 bytes" },
    { "{\"name\":\"abcdef\"}", "name", "at most 5 bytes" },
    { "{\"name\":\"\xc3\xa9\xc3\xa9\xc3\xa9\"}", "name", "at most 5 bytes" },
    /* enums */
    { "{\"name\":\"ab\",\"mode\":\"Fast\"}", "mode", "one of fast|slow|very slow" },
    { "{\"name\":\"ab\",\"mode\":\"fast|slow\"}", "mode", "one of" },
    { "{\"name\":\"ab\",\"mode\":\"\"}", "mode", "one of" },
    { "{\"name\":\"ab\",\"mode\":0}", "mode", "must be a string, not integer" },
    /* numbers */
    { "{\"name\":\"ab\",\"any_int\":1.0}", "any_int", "must be an integer, not number" },
    { "{\"name\":\"ab\",\"any_int\":9223372036854775808}", "any_int", "must be an integer" },
    { "{\"name\":\"ab\",\"any_int\":\"1\"}", "any_int", "must be an integer, not string" },
    { "{\"name\":\"ab\",\"any_int\":true}", "any_int", "must be an integer, not boolean" },
    { "{\"name\":\"ab\",\"below_zero\":-6}", "below_zero", "from -5 to 0" },
    { "{\"name\":\"ab\",\"below_zero\":1}", "below_zero", "from -5 to 0" },
    { "{\"name\":\"ab\",\"limits\":{\"memory\":0}}", "limits.memory", "from 1 to 1000" },
    { "{\"name\":\"ab\",\"limits\":{\"memory\":1001}}", "limits.memory", "from 1 to 1000" },
    { "{\"name\":\"ab\",\"limits\":{\"memory\":1,\"cpu\":8.001}}", "limits.cpu", "from 0 to 8" },
    { "{\"name\":\"ab\",\"limits\":{\"memory\":1,\"cpu\":-1}}", "limits.cpu", "from 0 to 8" },
    { "{\"name\":\"ab\",\"ratio\":\"3\"}", "ratio", "must be a number, not string" },
    /* booleans */
    { "{\"name\":\"ab\",\"tty\":1}", "tty", "must be true or false, not integer" },
    { "{\"name\":\"ab\",\"tty\":null}", "tty", "must be true or false, not null" },
    { "{\"name\":\"ab\",\"maybe\":null}", "maybe", "must be true or false, not null" },
    /* lists of strings */
    { "{\"name\":\"ab\",\"argv\":\"ls\"}", "argv", "must be an array, not string" },
    { "{\"name\":\"ab\",\"argv\":[]}", "argv", "at least 1 items" },
    { "{\"name\":\"ab\",\"argv\":[\"\",\"\",\"\",\"\"]}", "argv", "at most 3 items" },
    { "{\"name\":\"ab\",\"argv\":[\"a\",\"b\",3]}", "argv[2]", "must be a string, not integer" },
    /* maps */
    { "{\"name\":\"ab\",\"env\":[]}", "env", "must be an object, not array" },
    { "{\"name\":\"ab\",\"env\":{\"A\":1}}", "env.A", "must be a string, not integer" },
    { "{\"name\":\"ab\",\"env\":{\"\":\"x\"}}", "env", "empty name" },
    { "{\"name\":\"ab\",\"env\":{\"A\":\"\",\"B\":\"\",\"C\":\"\"}}", "env", "at most 2 items" },
    /* objects */
    { "{\"name\":\"ab\",\"limits\":[]}", "limits", "must be an object, not array" },
    { "{\"name\":\"ab\",\"limits\":null}", "limits", "must be an object, not null" },
    { "{\"name\":\"ab\",\"limits\":{}}", "limits.memory", "required" },
    /* lists of objects */
    { "{\"name\":\"ab\",\"ports\":{}}", "ports", "must be an array, not object" },
    { "{\"name\":\"ab\",\"ports\":[1]}", "ports[0]", "must be an object, not integer" },
    { "{\"name\":\"ab\",\"ports\":[{\"number\":1},{}]}", "ports[1].number", "required" },
    { "{\"name\":\"ab\",\"ports\":[{\"number\":1},{\"number\":1,\"protocol\":\"x\"}]}",
      "ports[1].protocol", "one of tcp|udp" },
    { "{\"name\":\"ab\",\"ports\":[{\"number\":1},{\"number\":1},{\"number\":1}]}", "ports",
      "at most 2 items" },
};

TEST(every_refusal_names_its_field)
{
    for (size_t i = 0; i < ARRAY_LEN(refusals); i++) {
        autoarena struct arena arena = { 0 };
        struct spec spec = { 0 };
        struct err err = { 0 };

        if (decode(&arena, refusals[i].text, &spec, NULL, &err) == 0)
            test_fail(__FILE__, __LINE__, "accepted %s", refusals[i].text);
        CHECK_INT(err.code, ERR_INVALID);
        if (strcmp(err.field, refusals[i].field) != 0 || !strstr(err.msg, refusals[i].why))
            test_fail(__FILE__, __LINE__, "%s: %s: %s", refusals[i].text, err.field, err.msg);
    }
}

/* ---- limits where the table sets none ---- */

static void put_repeated(struct buf *out, const char *head, const char *item, size_t count,
                         const char *tail)
{
    buf_clear(out);
    buf_puts(out, head);
    for (size_t i = 0; i < count; i++)
        buf_printf(out, "%s%s", i && item[0] == '"' ? "," : "", item);
    buf_puts(out, tail);
}

struct loose {
    const char *text;
    const char **list;
    struct field_pair *map;
};

static const struct field loose_fields[] = {
    FIELD(loose, text, F_STRING, 0),
    FIELD(loose, list, F_STRINGS, 0),
    FIELD(loose, map, F_MAP, 0),
    { 0 },
};

static int decode_loose(struct buf *text, struct loose *out, struct arena *arena, struct err *err)
{
    struct json *json;

    CHECK_OK(json_parse(arena, buf_view(text), &json, err), err);
    return field_decode(loose_fields, json, out, arena, NULL, err);
}

TEST(the_default_limits_hold_exactly)
{
    static const struct {
        const char *head, *item, *tail;
        size_t max;
    } cases[] = {
        { "{\"text\":\"", "x", "\"}", FIELD_BYTES_MAX },
        { "{\"list\":[\"", "x", "\"]}", FIELD_BYTES_MAX },
        { "{\"list\":[", "\"\"", "]}", FIELD_ITEMS_MAX },
        { "{\"map\":{\"k\":\"", "x", "\"}}", FIELD_BYTES_MAX },
        { "{\"map\":{\"", "x", "\":\"\"}}", FIELD_BYTES_MAX },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        autoarena struct arena arena = { 0 };
        autobuf struct buf text = { 0 };
        struct loose loose = { 0 };
        struct err err = { 0 };

        put_repeated(&text, cases[i].head, cases[i].item, cases[i].max, cases[i].tail);
        CHECK_OK(decode_loose(&text, &loose, &arena, &err), &err);
        put_repeated(&text, cases[i].head, cases[i].item, cases[i].max + 1, cases[i].tail);
        CHECK(decode_loose(&text, &loose, &arena, &err) < 0);
        CHECK_INT(err.code, ERR_INVALID);
    }
}

TEST(a_map_holds_its_default_count_exactly)
{
    for (int past = 0; past < 2; past++) {
        autoarena struct arena arena = { 0 };
        autobuf struct buf text = { 0 };
        struct loose loose = { 0 };
        struct err err = { 0 };

        buf_puts(&text, "{\"map\":{");
        for (int i = 0; i < FIELD_ITEMS_MAX + past; i++)
            buf_printf(&text, "%s\"%d\":\"\"", i ? "," : "", i);
        buf_puts(&text, "}}");
        CHECK((decode_loose(&text, &loose, &arena, &err) < 0) == past);
    }
}

TEST(a_long_unknown_name_is_cut_not_overflowed)
{
    autoarena struct arena arena = { 0 };
    autobuf struct buf text = { 0 };
    struct loose loose = { 0 };
    struct err err = { 0 };

    put_repeated(&text, "{\"", "y", 10000, "\":1}");
    CHECK(decode_loose(&text, &loose, &arena, &err) < 0);
    CHECK_INT(strlen(err.field), ERR_FIELD_SIZE - 1);
}

/* ---- writing ---- */

static char *encoded(const struct spec *spec)
{
    autobuf struct buf buf = { 0 };
    struct json_out out = json_to(&buf);

    field_encode(spec_fields, spec, &out);
    return buf_take(&buf, NULL);
}

TEST(every_type_is_written)
{
    autoarena struct arena arena = { 0 };
    struct err err = { 0 };
    struct json *extra;

    CHECK_OK(json_parse(&arena, STR("{\"a\":[1]}"), &extra, &err), &err);
    struct limits limits = { 5, 0.5 };
    struct port ports[] = { { 80, "tcp" }, { 53, NULL } };
    struct field_pair env[] = { { "K\"", "v" }, { 0 } };
    const char *argv[] = { "a", "b", NULL };
    struct spec spec = { .id = "sb1",
                         .name = "n",
                         .mode = "fast",
                         .any_int = -1,
                         .ratio = 2,
                         .tty = true,
                         .argv = argv,
                         .env = env,
                         .limits = &limits,
                         .ports = { ports, 2 },
                         .extra = extra,
                         .password = "pw",
                         .created_at = 1,
                         .maybe = &(bool){ false } };
    autofree char *full = encoded(&spec);
    CHECK_STR(full,
              "{\"id\":\"sb1\",\"name\":\"n\",\"mode\":\"fast\",\"free_text\":null,\"any_int\":-1,"
              "\"below_zero\":0,\"ratio\":2.0,\"tty\":true,\"argv\":[\"a\",\"b\"],\"env\":{"
              "\"K\\\"\":\"v\"},\"limits\":{\"memory\":5,\"cpu\":0.5},\"ports\":[{\"number\":80,"
              "\"protocol\":\"tcp\"},{\"number\":53,\"protocol\":null}],\"extra\":{\"a\":[1]},"
              "\"password\":\"pw\",\"created_at\":\"1970-01-01T00:00:00.001Z\",\"maybe\":false}");
    autofree char *empty = encoded(&(struct spec){ 0 });
    CHECK_STR(empty,
              "{\"id\":null,\"name\":null,\"mode\":null,\"free_text\":null,\"any_int\":0,"
              "\"below_zero\":0,\"ratio\":0.0,\"tty\":false,\"argv\":[],\"env\":{},\"limits\":null,"
              "\"ports\":[],\"extra\":null,\"password\":null,\"created_at\":null,\"maybe\":null}");
}

/* ---- schemas ---- */

static const struct json *schema(struct arena *arena, const struct field *fields, bool request)
{
    struct buf buf = { 0 };
    struct json_out out = json_to(&buf);
    struct json *json;
    struct err err = { 0 };

    field_schema(fields, request, &out);
    struct str text = arena_str(arena, buf_view(&buf));
    buf_free(&buf);
    CHECK_OK(json_parse(arena, text, &json, &err), &err);
    return json;
}

static char *text_of(const struct json *json)
{
    autobuf struct buf buf = { 0 };
    struct json_out out = json_to(&buf);

    json_put(&out, json);
    return buf_take(&buf, NULL);
}

static void check_part(const struct json *schema, const char *name, const char *want)
{
    const struct json *part = json_get(json_get(schema, "properties"), name);

    if (!part)
        test_fail(__FILE__, __LINE__, "no %s in the schema", name);
    autofree char *got = text_of(part);
    CHECK_STR(got, want);
}

TEST(a_request_schema_says_what_is_taken)
{
    autoarena struct arena arena = { 0 };
    const struct json *got = schema(&arena, spec_fields, true);

    CHECK(str_is(json_text(got, "type"), "object"));
    autofree char *required = text_of(json_get(got, "required"));
    CHECK_STR(required, "[\"name\"]");
    CHECK(json_get(got, "additionalProperties") && !json_true(got, "additionalProperties"));
    CHECK(!json_get(json_get(got, "properties"), "id"));
    CHECK(!json_get(json_get(got, "properties"), "created_at"));
    check_part(
        got, "name",
        "{\"type\":\"string\",\"minLength\":2,\"maxLength\":5,\"description\":\"What it is for\"}");
    check_part(got, "mode", "{\"type\":\"string\",\"enum\":[\"fast\",\"slow\",\"very slow\"]}");
    check_part(got, "free_text", "{\"type\":\"string\",\"maxLength\":4096}");
    check_part(got, "any_int", "{\"type\":\"integer\"}");
    check_part(got, "below_zero", "{\"type\":\"integer\",\"minimum\":-5,\"maximum\":0}");
    check_part(got, "ratio", "{\"type\":\"number\"}");
    check_part(got, "tty", "{\"type\":\"boolean\"}");
    check_part(got, "maybe", "{\"type\":\"boolean\"}");
    check_part(
        got, "argv",
        "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":4096},\"minItems\":1,"
        "\"maxItems\":3}");
    check_part(
        got, "env",
        "{\"type\":\"object\",\"additionalProperties\":{\"type\":\"string\",\"maxLength\":4096},"
        "\"maxProperties\":2}");
    check_part(
        got, "limits",
        "{\"type\":\"object\",\"properties\":{\"memory\":{\"type\":\"integer\",\"minimum\":1,"
        "\"maximum\":1000,\"description\":\"Bytes\"},\"cpu\":{\"type\":\"number\",\"minimum\":0,"
        "\"maximum\":8}},\"required\":[\"memory\"],\"additionalProperties\":false}");
    check_part(
        got, "ports",
        "{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{\"number\":{\"type\":"
        "\"integer\",\"minimum\":1,\"maximum\":65535},\"protocol\":{\"type\":\"string\",\"enum\":["
        "\"tcp\",\"udp\"]}},\"required\":[\"number\"],\"additionalProperties\":false},\"maxItems\":"
        "2}");
    check_part(got, "extra", "{}");
    check_part(got, "password", "{\"type\":\"string\",\"maxLength\":4096,\"writeOnly\":true}");
}

TEST(a_reply_schema_says_what_is_given)
{
    autoarena struct arena arena = { 0 };
    const struct json *got = schema(&arena, spec_fields, false);

    CHECK_INT(json_get(got, "properties")->count, ARRAY_LEN(spec_fields) - 1);
    CHECK_INT(json_get(got, "required")->count, ARRAY_LEN(spec_fields) - 2); /* not the secret */
    CHECK(!json_get(got, "additionalProperties"));
    check_part(got, "id", "{\"type\":[\"string\",\"null\"]}");
    check_part(got, "mode",
               "{\"type\":[\"string\",\"null\"],\"enum\":[\"fast\",\"slow\",\"very slow\",null]}");
    check_part(got, "below_zero", "{\"type\":\"integer\"}");
    check_part(got, "maybe", "{\"type\":[\"boolean\",\"null\"]}");
    check_part(got, "argv", "{\"type\":\"array\",\"items\":{\"type\":\"string\"}}");
    check_part(got, "created_at", "{\"type\":[\"string\",\"null\"],\"format\":\"date-time\"}");
    check_part(got, "limits",
               "{\"type\":[\"object\",\"null\"],\"properties\":{\"memory\":{\"type\":\"integer\","
               "\"description\":\"Bytes\"},\"cpu\":{\"type\":\"number\"}},\"required\":[\"memory\","
               "\"cpu\"]}");
}
