/*
 * json beside others: numbers beside strtod and printf, whole documents (random, half of them
 * damaged) beside jansson.
 */
#include "base/json.h"

#include <math.h>
#include <stdio.h>

/* jansson's names overlap ours. */
#define JSON_OBJECT JANSSON_OBJECT
#define JSON_ARRAY JANSSON_ARRAY
#define JSON_STRING JANSSON_STRING
#define JSON_NULL JANSSON_NULL
#define json_true jansson_true
#include <jansson.h>
static bool theirs_is_object(const json_t *it)
{
    return json_is_object(it);
}
static bool theirs_is_array(const json_t *it)
{
    return json_is_array(it);
}
static bool theirs_is_string(const json_t *it)
{
    return json_is_string(it);
}
static bool theirs_is_null(const json_t *it)
{
    return json_is_null(it);
}
#undef JSON_OBJECT
#undef JSON_ARRAY
#undef JSON_STRING
#undef JSON_NULL
#undef json_true

#include "base/test.h"

static struct json *must_parse(struct arena *arena, struct str text)
{
    struct json *root = NULL;
    struct err err = { 0 };

    if (json_parse(arena, text, &root, &err) < 0)
        test_fail(__FILE__, __LINE__, "refused %.*s: %s", STR_FMT(text), err.msg);
    return root;
}

static uint64_t bits_of(double num)
{
    uint64_t bits;

    memcpy(&bits, &num, sizeof(bits));
    return bits;
}

static double random_double(void)
{
    uint64_t bits = (uint64_t)test_rand(UINT32_MAX) << 32 | test_rand(UINT32_MAX);
    double num;

    switch (test_rand(4)) {
    case 0: /* any bits */
        memcpy(&num, &bits, sizeof(num));
        return isfinite(num) ? num : 0.5;
    case 1: /* money */
        return (double)(int)test_rand(100000000) / 100;
    case 2: /* integers as doubles, past 2^53 too */
        return (double)bits * (test_rand(2) ? 1 : -1);
    default:
        return (double)test_rand(1000000) / (1 + test_rand(1000)) *
               pow(10, (int)test_rand(60) - 30);
    }
}

TEST(doubles_come_back_as_they_were_in_the_fewest_digits)
{
    for (int round = 0; round < 50000; round++) {
        autoarena struct arena arena = { 0 };
        autobuf struct buf buf = { 0 };
        struct json_out out = json_to(&buf);
        double num = random_double();
        char shortest[40];
        int digits = 0;

        json_put_double(&out, num);
        struct json *root = must_parse(&arena, buf_view(&buf));
        CHECK_INT(root->type, JSON_DOUBLE);
        if (bits_of(root->real) != bits_of(num))
            test_fail(__FILE__, __LINE__, "%.17g came back as %.17g", num, root->real);
        do
            snprintf(shortest, sizeof(shortest), "%.*e", digits, num);
        while (strtod(shortest, NULL) != num && digits++ < 17);
        size_t used = 0, zeros = 0;
        for (size_t i = 0; i < buf.len && buf.data[i] != 'e'; i++) {
            if (buf.data[i] >= '0' && buf.data[i] <= '9' && (used || buf.data[i] != '0')) {
                used++;
                zeros = buf.data[i] == '0' ? zeros + 1 : 0;
            }
        }
        if (num != 0 && used - zeros > (size_t)digits + 1)
            test_fail(__FILE__, __LINE__, "%s is not the shortest (%s)", buf_cstr(&buf), shortest);
    }
}

TEST(long_numbers_are_rounded_like_strtod_does)
{
    for (int round = 0; round < 3000; round++) {
        autoarena struct arena arena = { 0 };
        autobuf struct buf text = { 0 };
        unsigned whole = 1 + test_rand(round % 10 ? 30 : 1200),
                 part = test_rand(round % 10 ? 30 : 1200);

        if (test_rand(2))
            buf_putc(&text, '-');
        buf_putc(&text, (char)('1' + test_rand(9)));
        for (unsigned i = 1; i < whole; i++)
            buf_putc(&text, (char)('0' + (test_rand(3) ? test_rand(10) : 0)));
        buf_puts(&text, ".0");
        for (unsigned i = 0; i < part; i++)
            buf_putc(&text, (char)('0' + (test_rand(3) ? test_rand(10) : 0)));
        buf_printf(&text, "e%d", (int)test_rand(600) - 300 - (int)(whole > 300 ? whole : 0));
        double want = strtod(buf_cstr(&text), NULL);
        struct json *root;
        struct err err = { 0 };
        int rc = json_parse(&arena, buf_view(&text), &root, &err);
        if (isinf(want)) {
            CHECK(rc < 0);
            continue;
        }
        CHECK_OK(rc, &err);
        if (bits_of(root->real) != bits_of(want))
            test_fail(__FILE__, __LINE__, "%s: %.17g, not %.17g", buf_cstr(&text), root->real,
                      want);
    }
}

/* Halfway points have up to 767 digits; the 769th must still decide. */
TEST(the_last_digit_of_a_very_long_halfway_number_decides)
{
    autoarena struct arena arena = { 0 };
    char half[1200];
    double low = 2.2250738585072011e-308; /* just below the normal range: the most digits */

    if (bits_of(low) & 1) /* so that the exact middle goes down, and a hair more must go up */
        low = nextafter(low, 0);
    double high = nextafter(low, 1);

    int len = snprintf(half, sizeof(half), "%.1074f", low);
    CHECK(len == 1076);
    /* low and its successor differ by 2^-1074; the middle needs one binary digit more. */
    long double middle = ((long double)low + (long double)high) / 2;
    len = snprintf(half, sizeof(half), "%.1075Lf", middle);
    CHECK(len == 1077 && half[len - 1] == '5');
    CHECK(must_parse(&arena, (struct str){ half, (size_t)len })->real == low);
    half[len] = '0', half[len + 1] = '1';
    CHECK(must_parse(&arena, (struct str){ half, (size_t)len + 2 })->real == high);
    half[len - 1] = '4';
    CHECK(must_parse(&arena, (struct str){ half, (size_t)len })->real == low);
}

/* ---- side by side with jansson ---- */

static void random_text(struct buf *out)
{
    static const char *const bits[] = { "a",
                                        "b",
                                        "key",
                                        "\\n",
                                        "\\u0041",
                                        "\\\\",
                                        "\\ud83d\\ude00",
                                        "\xc3\xa9",
                                        "\xe2\x82\xac",
                                        " ",
                                        "longer piece of text",
                                        "\\/" };

    buf_putc(out, '"');
    for (uint32_t i = test_rand(5); i; i--)
        buf_puts(out, bits[test_rand(ARRAY_LEN(bits))]);
    buf_putc(out, '"');
}

static void random_scalar(struct buf *out)
{
    switch (test_rand(6)) {
    case 0:
        buf_printf(out, "%d", (int)test_rand(2000) - 1000);
        break;
    case 1:
        buf_printf(out, "%lld",
                   (long long)((uint64_t)test_rand(UINT32_MAX) << 32 | test_rand(UINT32_MAX)));
        break;
    case 2:
        buf_printf(out, "%.*e", (int)test_rand(20), random_double());
        break;
    case 3:
        buf_puts(out, (const char *[]){ "true", "false", "null" }[test_rand(3)]);
        break;
    default:
        random_text(out);
    }
}

/* A document by a walk over open brackets; keys are numbered, so they rarely repeat. */
static void random_document(struct buf *out)
{
    char open[20] = { 0 };
    size_t depth = 0;
    bool fresh = true;

    for (int i = 0; i < 40; i++) {
        if (depth && test_rand(4) == 0) {
            buf_putc(out, open[--depth] == '{' ? '}' : ']');
            fresh = false;
            if (depth == 0)
                return;
            continue;
        }
        if (!fresh)
            buf_puts(out, test_rand(9) ? "," : " ,\n");
        if (depth && open[depth - 1] == '{')
            buf_printf(out, "\"k%d\":", test_rand(50) ? i : 0);
        fresh = depth < sizeof(open) && (depth == 0 || test_rand(3) == 0);
        if (fresh) {
            open[depth] = test_rand(2) ? '{' : '[';
            buf_putc(out, open[depth++]);
        } else {
            random_scalar(out);
        }
    }
    while (depth)
        buf_putc(out, open[--depth] == '{' ? '}' : ']');
}

static void damage(struct buf *text)
{
    static const char marks[] = "{}[]\",:\\u0-1e.+ \n\x80\xc3tfn";

    for (uint32_t i = 1 + test_rand(3); i && text->len; i--) {
        uint32_t at = test_rand((uint32_t)text->len);

        switch (test_rand(3)) {
        case 0:
            text->data[at] = marks[test_rand(sizeof(marks) - 1)];
            break;
        case 1:
            memmove(text->data + at, text->data + at + 1, text->len - at - 1);
            text->len--;
            break;
        default:
            text->len = at;
        }
    }
}

static void same(const struct json *ours, json_t *theirs)
{
    size_t at = 0;

    switch (ours->type) {
    case JSON_OBJECT:
        CHECK(theirs_is_object(theirs) && json_object_size(theirs) == ours->count);
        json_each(pos, ours)
        {
            autofree char *key = xmemdup0(pos->key.p, pos->key.n);

            same(pos, json_object_get(theirs, key));
        }
        break;
    case JSON_ARRAY:
        CHECK(theirs_is_array(theirs) && json_array_size(theirs) == ours->count);
        json_each(pos, ours) same(pos, json_array_get(theirs, at++));
        break;
    case JSON_STRING:
        CHECK(theirs_is_string(theirs));
        CHECK(str_eq(ours->text,
                     (struct str){ json_string_value(theirs), json_string_length(theirs) }));
        break;
    case JSON_INT:
        CHECK(json_is_integer(theirs) && json_integer_value(theirs) == ours->num);
        break;
    case JSON_DOUBLE:
        CHECK(json_is_real(theirs) && json_real_value(theirs) == ours->real);
        break;
    case JSON_BOOL:
        CHECK(json_is_boolean(theirs) && json_is_true(theirs) == ours->truth);
        break;
    default:
        CHECK(theirs_is_null(theirs));
    }
}

TEST(jansson_agrees_about_every_document)
{
    int both = 0, neither = 0;

    for (int round = 0; round < 20000; round++) {
        autoarena struct arena arena = { 0 };
        autobuf struct buf text = { 0 };
        struct json *ours = NULL;
        struct err err = { 0 };
        json_error_t error;

        random_document(&text);
        if (round % 2)
            damage(&text);
        int rc = json_parse(&arena, buf_view(&text), &ours, &err);
        json_t *theirs = json_loadb(text.data ? text.data : "", text.len,
                                    JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
        /* Known differences: integers past int64 are doubles for us, errors for jansson. */
        if (!theirs && strstr(error.text, "too big"))
            continue;
        if ((rc == 0) != (theirs != NULL))
            test_fail(__FILE__, __LINE__, "we say \"%s\", jansson \"%s\" about %s",
                      rc < 0 ? err.msg : "fine", theirs ? "fine" : error.text, buf_cstr(&text));
        if (theirs) {
            same(ours, theirs);
            json_decref(theirs);
        }
        both += theirs != NULL;
        neither += theirs == NULL;
    }
    CHECK(both > 5000 && neither > 5000);
}
