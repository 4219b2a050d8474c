/* See origin.h. A head is collected up to its empty line and split once; bodies are not copied. */
#include "http/origin.h"

#include <string.h>

bool header_lists(struct str list, struct str word)
{
    while (list.n)
        if (str_eq_nocase(str_trim(str_cut(&list, ',')), word))
            return true;
    return false;
}

bool header_is_hop(struct str name)
{
    static const struct str hops[] = {
        STR_INIT("connection"),
        STR_INIT("keep-alive"),
        STR_INIT("proxy-authenticate"),
        STR_INIT("proxy-authorization"),
        STR_INIT("proxy-connection"),
        STR_INIT("te"),
        STR_INIT("trailer"),
        STR_INIT("transfer-encoding"),
        STR_INIT("upgrade"),
    };

    for (size_t i = 0; i < ARRAY_LEN(hops); i++)
        if (str_eq_nocase(name, hops[i]))
            return true;
    return false;
}

void origin_free(struct origin *origin)
{
    buf_free(&origin->head);
    arena_free(&origin->arena);
}

static enum origin_got bad(struct origin *origin, struct err *err, const char *why)
{
    origin->at = ORIGIN_OVER;
    err_set(err, ERR_UPSTREAM, "what listens there does not speak proper HTTP: %s", why);
    return ORIGIN_BAD;
}

/* ---- the head ---- */

/* Copied, because the body's bytes come next; names in lower case, as HTTP/2 wants them. */
static void keep_fields(struct origin *origin, const struct client_head *head)
{
    struct http_header *fields =
        arena_alloc(&origin->arena, sizeof(*fields) * (head->count ? head->count : 1));

    for (size_t i = 0; i < head->count; i++) {
        struct str name = head->fields[i].name;
        char *lower = arena_memdup0(&origin->arena, name.p, name.n);

        for (size_t k = 0; k < name.n; k++)
            if (lower[k] >= 'A' && lower[k] <= 'Z')
                lower[k] = (char)(lower[k] + 'a' - 'A');
        fields[i] = (struct http_header){ { lower, name.n },
                                          arena_str(&origin->arena, head->fields[i].value) };
    }
    origin->headers = fields;
    origin->count = head->count;
}

static enum origin_got take_head(struct origin *origin, struct str text, struct err *err)
{
    struct client_head head;

    if (client_head_split(text, origin->to_head, &head, err) < 0) {
        struct err story = *err;

        return bad(origin, err, story.msg);
    }
    buf_clear(&origin->head);
    if (head.status == 101 && !origin->may_switch)
        return bad(origin, err, "101 to a request that wanted nothing else");
    if (head.status < 200 && head.status != 101)
        return ORIGIN_MORE; /* 100, 103: the answer itself follows */
    keep_fields(origin, &head);
    origin->status = head.status;
    origin->framing = head.framing;
    origin->left = head.framing == FRAMED_LENGTH ? (uint64_t)head.length : 0;
    origin->at = head.status == 101 ? ORIGIN_RAW : ORIGIN_IN_BODY;
    return ORIGIN_HEAD;
}

static enum origin_got read_head(struct origin *origin, struct str *in, struct err *err)
{
    size_t before = origin->head.len, from = before > 3 ? before - 3 : 0;
    size_t take = MIN(in->n, HTTP_HEAD_MAX + 4 - MIN(before, (size_t)HTTP_HEAD_MAX + 4));

    buf_append(&origin->head, in->p, take);
    const char *data = origin->head.data;
    const char *end = origin->head.len > from
                          ? memmem(data + from, origin->head.len - from, "\r\n\r\n", 4)
                          : NULL;
    if (!end) {
        *in = str_from(*in, take);
        if (origin->head.len >= HTTP_HEAD_MAX)
            return bad(origin, err, "its head is too long");
        return ORIGIN_MORE;
    }
    *in = str_from(*in, (size_t)(end - data) + 4 - before);
    return take_head(origin, (struct str){ data, (size_t)(end - data) }, err);
}

/* ---- the body ---- */

static enum origin_got over(struct origin *origin)
{
    origin->at = ORIGIN_OVER;
    return ORIGIN_END;
}

static enum origin_got read_chunked(struct origin *origin, struct str *in, struct str *piece,
                                    struct err *err)
{
    const struct h1_bad *why = NULL;
    bool done = false;
    int64_t took = h1_chunks_next(&origin->chunks, in->p, in->n, piece, &done, &why);

    if (took < 0)
        return bad(origin, err, why->text);
    *in = str_from(*in, (size_t)took);
    if (done)
        return over(origin);
    return piece->n ? ORIGIN_DATA : ORIGIN_MORE;
}

static enum origin_got read_body(struct origin *origin, struct str *in, struct str *piece,
                                 struct err *err)
{
    if (origin->framing == FRAMED_NONE || (origin->framing == FRAMED_LENGTH && !origin->left))
        return over(origin);
    if (!in->n)
        return ORIGIN_MORE;
    if (origin->framing == FRAMED_CHUNKED)
        return read_chunked(origin, in, piece, err);
    *piece = *in;
    if (origin->framing == FRAMED_LENGTH) {
        piece->n = (size_t)MIN((uint64_t)in->n, origin->left);
        origin->left -= piece->n;
    }
    *in = str_from(*in, piece->n);
    return ORIGIN_DATA;
}

enum origin_got origin_next(struct origin *origin, struct str *in, struct str *piece,
                            struct err *err)
{
    *piece = STR_NONE;
    for (;;) {
        enum origin_got got;

        switch (origin->at) {
        case ORIGIN_IN_HEAD:
            got = in->n ? read_head(origin, in, err) : ORIGIN_MORE;
            break;
        case ORIGIN_IN_BODY:
            got = read_body(origin, in, piece, err);
            break;
        case ORIGIN_RAW:
            *piece = *in;
            *in = STR_NONE;
            return piece->n ? ORIGIN_DATA : ORIGIN_MORE;
        default:
            *in = STR_NONE;
            return ORIGIN_END;
        }
        if (got != ORIGIN_MORE || !in->n)
            return got;
    }
}

bool origin_closed(const struct origin *origin)
{
    return origin->at == ORIGIN_OVER || origin->at == ORIGIN_RAW ||
           (origin->at == ORIGIN_IN_BODY &&
            (origin->framing == FRAMED_CLOSE || origin->framing == FRAMED_NONE ||
             (origin->framing == FRAMED_LENGTH && !origin->left)));
}
