/*
 * multipart/form-data (RFC 7578), of which two parts count: the file, and who brings it. The body
 * is there as a whole; nothing is copied. What is not exactly a part is an error, not skipped.
 */
#include "hub/own.h"

/* The value of `name` in a list of ;-separated parameters, quoted or not. */
static bool parameter(struct str rest, const char *name, struct str *out)
{
    str_cut(&rest, ';'); /* the value itself */
    while (rest.n) {
        while (rest.n && (rest.p[0] == ' ' || rest.p[0] == '\t' || rest.p[0] == ';'))
            rest = str_from(rest, 1);
        struct str key = { rest.p, 0 }, value;
        while (key.n < rest.n && rest.p[key.n] != '=' && rest.p[key.n] != ';')
            key.n++;
        rest = str_from(rest, key.n);
        if (!rest.n || rest.p[0] != '=')
            continue;
        rest = str_from(rest, 1);
        bool quoted = rest.n && rest.p[0] == '"';
        if (quoted)
            rest = str_from(rest, 1);
        value = (struct str){ rest.p, 0 };
        while (value.n < rest.n && rest.p[value.n] != (quoted ? '"' : ';'))
            value.n++;
        if (quoted && value.n == rest.n)
            return false;
        rest = str_from(rest, value.n + quoted);
        if (str_eq_nocase(str_trim(key), str_of(name))) {
            *out = quoted ? value : str_trim(value);
            return true;
        }
    }
    return false;
}

static const char *find(struct str in, struct str what)
{
    return in.n >= what.n && what.n ? memmem(in.p, in.n, what.p, what.n) : NULL;
}

/* Takes the next line of a part's head; false at its end. */
static bool next_line(struct str *head, struct str *line)
{
    const char *end = find(*head, STR("\r\n"));

    if (!head->n)
        return false;
    size_t len = end ? (size_t)(end - head->p) : head->n;
    *line = (struct str){ head->p, len };
    *head = str_from(*head, end ? len + 2 : len);
    return true;
}

static int take_part(struct str head, struct str data, struct hub_form *out, struct err *err)
{
    struct str line, name = STR_NONE, filename = STR_NONE;
    bool named = false, is_file = false;

    while (next_line(&head, &line)) {
        struct str value = line, key = str_cut(&value, ':');

        if (!str_eq_nocase(str_trim(key), STR("content-disposition")))
            continue;
        named = parameter(value, "name", &name);
        is_file = parameter(value, "filename", &filename);
    }
    if (!named)
        return err_set(err, ERR_INVALID, "a part of the form has no name");
    if (str_is(name, "file") && is_file) {
        if (out->has_file)
            return err_field(err, "file", "given twice");
        out->has_file = true;
        out->filename = filename;
        out->data = data;
    } else if (str_is(name, "uploader")) {
        if (out->uploader.p)
            return err_field(err, "uploader", "given twice");
        out->uploader = data;
    }
    return 0;
}

int hub_form_parse(struct str content_type, struct str body, struct hub_form *out, struct err *err)
{
    struct str rest = content_type, boundary;
    autobuf struct buf mark = { 0 };

    *out = (struct hub_form){ 0 };
    if (!str_eq_nocase(str_trim(str_cut(&rest, ';')), STR("multipart/form-data")))
        return err_set(err, ERR_INVALID, "file required");
    if (!parameter(content_type, "boundary", &boundary) || !boundary.n || boundary.n > 70)
        return err_set(err, ERR_INVALID, "the form's boundary is missing or too long");
    buf_puts(&mark, "\r\n--");
    buf_str(&mark, boundary);
    struct str full = buf_view(&mark), first = str_from(full, 2);
    const char *at = find(body, first);
    if (!at || (at != body.p && find((struct str){ body.p, (size_t)(at - body.p) + 2 }, full)))
        return err_set(err, ERR_INVALID, "the form does not begin with its boundary");
    body = str_from(body, (size_t)(at - body.p) + first.n);
    while (!str_starts(body, STR("--"))) {
        const char *head_end = find(body, STR("\r\n\r\n"));
        if (!str_starts(body, STR("\r\n")) || !head_end)
            return err_set(err, ERR_INVALID, "the form is cut off");
        struct str head = { body.p + 2, (size_t)(head_end - body.p) -
                                            MIN((size_t)2, (size_t)(head_end - body.p)) };
        struct str data = str_from(body, (size_t)(head_end - body.p) + 4);
        const char *end = find(data, full);
        if (!end)
            return err_set(err, ERR_INVALID, "the form is cut off");
        size_t len = (size_t)(end - data.p);
        if (take_part(head, (struct str){ data.p, len }, out, err) < 0)
            return -1;
        body = str_from(data, len + full.n);
    }
    return out->has_file ? 0 : err_set(err, ERR_INVALID, "file required");
}
