/* Forms as clients send them, and as they do not. */
#include "base/test.h"
#include "hub/hub.h"

#define TYPE "multipart/form-data; boundary=B"
#define FILE_PART(name_, data_)                                                                    \
    "--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"" name_ "\"\r\n"             \
    "Content-Type: text/plain\r\n\r\n" data_ "\r\n"

static int parse(const char *type, const char *body, struct hub_form *out)
{
    struct err err;

    return hub_form_parse(str_of(type), str_of(body), out, &err);
}

TEST(form_gives_file_and_uploader)
{
    struct hub_form form;

    CHECK(parse(TYPE,
                FILE_PART("a.txt", "x\r\n--C\r\ny") "--B\r\nContent-Disposition: form-data;"
                                                    " name=uploader\r\n\r\nalice\r\n--B--\r\n",
                &form) == 0);
    CHECK(str_is(form.filename, "a.txt") && str_is(form.data, "x\r\n--C\r\ny"));
    CHECK(str_is(form.uploader, "alice"));
    CHECK(parse("Multipart/Form-Data; boundary=\"B\"", FILE_PART("a", "") "--B--", &form) == 0);
    CHECK(form.data.n == 0 && !form.uploader.n);
    CHECK(parse(TYPE, "preamble\r\n" FILE_PART("b", "z") "--B--\r\n", &form) == 0);
}

TEST(form_refuses_what_is_none)
{
    struct hub_form form;
    static const char *const bodies[] = {
        "",
        "--B",
        "--B--",
        "--B\r\n",
        "--B\r\n\r\n",
        FILE_PART("a", "x"),
        "--C\r\n\r\n--C--",
        FILE_PART("a", "x") FILE_PART("b", "y") "--B--",
        "--B\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nx\r\n--B--",
        "--B\r\nContent-Type: a/b\r\n\r\nx\r\n--B--",
        "--B\r\nContent-Disposition: form-data; name=\"file\r\n\r\nx\r\n--B--",
    };

    for (size_t i = 0; i < ARRAY_LEN(bodies); i++)
        if (parse(TYPE, bodies[i], &form) == 0)
            test_fail(__FILE__, __LINE__, "taken: %s", bodies[i]);
    CHECK(parse("application/json", FILE_PART("a", "x") "--B--", &form) < 0);
    CHECK(parse("multipart/form-data", FILE_PART("a", "x") "--B--", &form) < 0);
    CHECK(parse("multipart/form-data; boundary=", FILE_PART("a", "x") "--B--", &form) < 0);
}
