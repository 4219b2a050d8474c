/*
 * One pass over the bytes. Request line, then fields; each line is read by a function that says
 * "complete", "cut off" or "bad". A head that is cut off is resumed at the line where it stopped,
 * so that bytes coming one at a time cost no more than a second look at their own line.
 *
 * Values are scanned eight bytes at a time: a word holds no byte that ends or spoils a value if
 * none is below a space and none is DEL. The name tables are indexed by byte. Order of the checks
 * is the order of the bytes, limits included, so the answer never depends on the cuts.
 */
#include "http/h1.h"

#include <endian.h>

#include "http/url.h"

#define METHOD_MAX 32
#define ONES 0x0101010101010101ull
#define TOPS 0x8080808080808080ull

/* clang-format off */
static const struct h1_bad
    bad_line      = { 400, ERR_INVALID, "malformed request line" },
    bad_method    = { 400, ERR_INVALID, "malformed method" },
    bad_target    = { 400, ERR_INVALID, "malformed request target" },
    bad_version   = { 505, ERR_UNSUPPORTED, "HTTP version not supported" },
    bad_name      = { 400, ERR_INVALID, "malformed header name" },
    bad_value     = { 400, ERR_INVALID, "malformed header value" },
    bad_fold      = { 400, ERR_INVALID, "folded header line" },
    bad_end       = { 400, ERR_INVALID, "a line must end with CR LF" },
    long_line     = { 414, ERR_HEADERS, "request line too long" },
    long_head     = { 431, ERR_HEADERS, "request head too large" },
    many_fields   = { 431, ERR_HEADERS, "too many header fields" },
    no_host       = { 400, ERR_INVALID, "Host is missing" },
    two_hosts     = { 400, ERR_INVALID, "more than one Host" },
    bad_host      = { 400, ERR_INVALID, "malformed Host" },
    two_lengths   = { 400, ERR_INVALID, "more than one Content-Length" },
    bad_length    = { 400, ERR_INVALID, "malformed Content-Length" },
    big_length    = { 413, ERR_LIMIT, "body too large" },
    two_codings   = { 400, ERR_INVALID, "more than one Transfer-Encoding" },
    bad_coding    = { 501, ERR_UNSUPPORTED, "Transfer-Encoding other than chunked" },
    both_lengths  = { 400, ERR_INVALID, "both Content-Length and Transfer-Encoding" },
    coding_in_1_0 = { 400, ERR_INVALID, "Transfer-Encoding in HTTP/1.0" },
    bad_expect    = { 417, ERR_EXPECTATION, "Expect other than 100-continue" };

/* RFC 9110 section 5.6.2. */
static const bool token_chars[256] = {
    ['!'] = 1, ['#'] = 1, ['$'] = 1, ['%'] = 1, ['&'] = 1, ['\''] = 1, ['*'] = 1, ['+'] = 1,
    ['-'] = 1, ['.'] = 1, ['^'] = 1, ['_'] = 1, ['`'] = 1, ['|'] = 1, ['~'] = 1,
    ['0' ... '9'] = 1, ['A' ... 'Z'] = 1, ['a' ... 'z'] = 1,
};
/* clang-format on */

/* What is being read: [at, end) are the bytes that may be looked at. */
struct reader {
    const char *at, *end;
    const struct h1_bad *over; /* the error of reaching `end` because of a limit; NULL: need more */
    const struct h1_bad *bad;
};

enum step { STEP_DONE, STEP_MORE, STEP_BAD };

static enum step step_bad(struct reader *reader, const struct h1_bad *bad)
{
    reader->bad = bad;
    return STEP_BAD;
}

/* Out of bytes: at a limit that is an error, otherwise a reason to wait. */
static enum step step_end(struct reader *reader)
{
    return reader->over ? step_bad(reader, reader->over) : STEP_MORE;
}

/* Bytes that cannot stand in a value (tab apart), or in a target. */
static inline bool ends_value(unsigned char c)
{
    return c < 0x20 || c == 0x7f;
}

static inline bool ends_target(unsigned char c)
{
    return c <= 0x20 || c >= 0x7f;
}

/*
 * The top bit of each byte in `word` that is below `floor` (at most 0x80) or DEL. Borrows can mark
 * bytes above a marked one wrongly; the lowest mark is always right, and only that is used.
 */
static inline uint64_t marks_below(uint64_t word, unsigned floor)
{
    uint64_t del = word ^ (ONES * 0x7f);

    return (((word - ONES * floor) & ~word) | ((del - ONES) & ~del)) & TOPS;
}

static inline const char *find_value_end(const char *p, const char *end)
{
    for (; end - p >= 8; p += 8) {
        uint64_t word;

        memcpy(&word, p, 8);
        uint64_t marks = marks_below(le64toh(word), 0x20);
        if (marks)
            return p + (unsigned)__builtin_ctzll(marks) / 8;
    }
    while (p < end && !ends_value((unsigned char)*p))
        p++;
    return p;
}

static inline const char *find_target_end(const char *p, const char *end)
{
    for (; end - p >= 8; p += 8) {
        uint64_t word;

        memcpy(&word, p, 8);
        word = le64toh(word);
        uint64_t marks = marks_below(word, 0x21) | (word & TOPS);
        if (marks)
            return p + (unsigned)__builtin_ctzll(marks) / 8;
    }
    while (p < end && !ends_target((unsigned char)*p))
        p++;
    return p;
}

/* ---- lines ---- */

static enum step read_crlf(struct reader *reader)
{
    if (reader->at == reader->end)
        return step_end(reader);
    if (*reader->at != '\r')
        return step_bad(reader, &bad_end);
    if (reader->at + 1 == reader->end)
        return step_end(reader);
    if (reader->at[1] != '\n')
        return step_bad(reader, &bad_end);
    reader->at += 2;
    return STEP_DONE;
}

static enum step read_version(struct reader *reader, enum http_version *version)
{
    static const char word[] = "HTTP/1.";
    size_t have = (size_t)(reader->end - reader->at);

    if (have >= 10 && memcmp(reader->at, "HTTP/1.1\r\n", 10) == 0) {
        *version = HTTP_1_1;
        reader->at += 10;
        return STEP_DONE;
    }
    for (size_t i = 0; i < sizeof(word) - 1; i++) {
        if (i == have)
            return step_end(reader);
        if (reader->at[i] == word[i])
            continue;
        bool digit = i == 5 && reader->at[i] >= '0' && reader->at[i] <= '9';
        return step_bad(reader, digit ? &bad_version : &bad_line);
    }
    if (have == sizeof(word) - 1)
        return step_end(reader);
    char minor = reader->at[sizeof(word) - 1];
    if (minor != '0' && minor != '1')
        return step_bad(reader, minor >= '2' && minor <= '9' ? &bad_version : &bad_line);
    *version = minor == '1' ? HTTP_1_1 : HTTP_1_0;
    reader->at += sizeof(word);
    return read_crlf(reader);
}

static enum step read_request_line(struct reader *reader, struct h1_head *head)
{
    const char *start = reader->at, *p = start;

    while (p < reader->end && token_chars[(unsigned char)*p])
        if (++p - start > METHOD_MAX)
            return step_bad(reader, &bad_method);
    if (p == reader->end)
        return step_end(reader);
    if (p == start || *p != ' ')
        return step_bad(reader, &bad_method);
    head->method = (struct str){ start, (size_t)(p - start) };

    start = ++p;
    p = find_target_end(p, reader->end);
    if (p == reader->end)
        return step_end(reader);
    if (p == start || *p != ' ')
        return step_bad(reader, &bad_target);
    head->target = (struct str){ start, (size_t)(p - start) };
    reader->at = p + 1;
    return read_version(reader, &head->version);
}

/* One field line. */
static enum step read_field(struct reader *reader, struct http_header *header)
{
    const char *start = reader->at, *p = start;

    while (p < reader->end && token_chars[(unsigned char)*p])
        p++;
    if (p == reader->end)
        return step_end(reader);
    if (p == start && (*p == ' ' || *p == '\t'))
        return step_bad(reader, &bad_fold);
    if (p == start || *p != ':')
        return step_bad(reader, &bad_name);
    header->name = (struct str){ start, (size_t)(p - start) };

    start = ++p;
    for (;; p++) {
        p = find_value_end(p, reader->end);
        if (p == reader->end)
            return step_end(reader);
        if (*p != '\t')
            break;
    }
    if (*p != '\r')
        return step_bad(reader, *p == '\n' ? &bad_end : &bad_value);
    header->value = (struct str){ start, (size_t)(p - start) };
    reader->at = p;
    return read_crlf(reader);
}

static void reader_limit(struct reader *reader, const char *start, size_t len, size_t max,
                         const struct h1_bad *over)
{
    reader->end = start + MIN(len, max);
    reader->over = len >= max ? over : NULL;
}

static enum step read_fields(struct reader *reader, const char *data, struct h1_resume *resume,
                             struct h1_head *head)
{
    for (;;) {
        if (reader->at == reader->end)
            return step_end(reader);
        if (*reader->at == '\r') {
            enum step step = read_crlf(reader);

            if (step == STEP_DONE)
                head->count = resume->fields;
            return step;
        }
        if (resume->fields == HTTP_FIELDS_MAX)
            return step_bad(reader, &many_fields);
        enum step step = read_field(reader, &head->headers[resume->fields]);
        if (step != STEP_DONE)
            return step;
        resume->fields++;
        resume->line = (uint32_t)(reader->at - data);
    }
}

int h1_head_scan(const char *data, size_t len, struct h1_resume *resume, struct h1_head *head,
                 const struct h1_bad **bad)
{
    struct reader reader = { .at = data + resume->line };
    bool resumed = resume->line > 0;
    enum step step = STEP_DONE;

    if (!resume->line) {
        reader_limit(&reader, data, len, HTTP_LINE_MAX, &long_line);
        /* RFC 9112 section 2.2: one empty line before the request is to be ignored. */
        if (len && data[0] == '\r')
            step = read_crlf(&reader);
        if (step == STEP_DONE)
            step = read_request_line(&reader, head);
        if (step == STEP_DONE)
            resume->line = (uint32_t)(reader.at - data);
    }
    if (step == STEP_DONE) {
        reader_limit(&reader, data, len, HTTP_HEAD_MAX, &long_head);
        step = read_fields(&reader, data, resume, head);
    }
    if (step == STEP_BAD) {
        *bad = reader.bad;
        return -1;
    }
    if (step == STEP_MORE)
        return 0;
    if (resumed) { /* the lines seen in earlier calls have to be collected again */
        *resume = (struct h1_resume){ 0 };
        return h1_head_scan(data, len, resume, head, bad);
    }
    return (int)(reader.at - data);
}

/* ---- copying ---- */

/* Lower-cases `len` bytes; may read and rewrite up to 7 bytes behind them unchanged. */
static void lower(char *p, size_t len)
{
    for (size_t at = 0; at < len; at += 8) {
        uint64_t word;

        memcpy(&word, p + at, 8);
        uint64_t low = le64toh(word) & ~TOPS;
        uint64_t upper =
            ((low + ONES * (0x80 - 'A')) ^ (low + ONES * (0x7f - 'Z'))) & ~le64toh(word) & TOPS;
        if (len - at < 8)
            upper &= (1ull << (8 * (len - at))) - 1;
        word |= htole64(upper >> 2);
        memcpy(p + at, &word, 8);
    }
}

static struct str moved(struct str slice, const char *from, char *to)
{
    return (struct str){ to + (slice.p - from), slice.n };
}

/* Brings head strings and fields into the arena. */
static void adopt(struct arena *arena, const char *data, size_t len, struct h1_head *head)
{
    size_t table = head->count * sizeof(struct http_header);
    struct http_header *headers = arena_raw(arena, table + len + 8);
    char *copy = (char *)headers + table;

    memcpy(copy, data, len);
    head->method = moved(head->method, data, copy);
    head->target = moved(head->target, data, copy);
    for (size_t i = 0; i < head->count; i++) {
        struct http_header *header = &head->headers[i];

        header->name = moved(header->name, data, copy);
        lower(copy + (header->name.p - copy), header->name.n);
        header->value = str_trim(moved(header->value, data, copy));
        headers[i] = *header;
    }
    head->fields = headers;
}

/* ---- meaning ---- */

static bool has_prefix_nocase(struct str text, struct str prefix)
{
    return text.n >= prefix.n && str_eq_nocase((struct str){ text.p, prefix.n }, prefix);
}

/* Origin-form, "*" for OPTIONS, or absolute-form, whose host then counts (RFC 9112 section 3.2). */
static const struct h1_bad *check_target(struct h1_head *head, struct str *target_host)
{
    struct str target = head->target;

    if (memchr(target.p, '#', target.n))
        return &bad_target;
    if (target.p[0] == '*' && target.n == 1) {
        head->path = target;
        head->query = STR_NONE;
        return str_is(head->method, "OPTIONS") ? NULL : &bad_target;
    }
    if (target.p[0] != '/') {
        size_t scheme = has_prefix_nocase(target, STR("http://"))    ? 7
                        : has_prefix_nocase(target, STR("https://")) ? 8
                                                                     : 0;
        const char *slash = scheme ? memchr(target.p + scheme, '/', target.n - scheme) : NULL;

        if (!slash)
            return &bad_target;
        *target_host = (struct str){ target.p + scheme, (size_t)(slash - target.p) - scheme };
        if (!url_host_ok(*target_host))
            return &bad_target;
        target = str_from(target, (size_t)(slash - target.p));
        head->target = target;
    }
    const char *mark = memchr(target.p, '?', target.n);
    size_t path_len = mark ? (size_t)(mark - target.p) : target.n;
    head->path = (struct str){ target.p, path_len };
    head->query = str_from(target, path_len + 1);
    return NULL;
}

/* What the fields that decide about framing said. */
struct framing {
    bool host, length, coding, close, keep_alive;
};

static const struct h1_bad *check_length(struct str value, int64_t *out)
{
    int64_t size = 0;

    if (value.n < 1 || value.n > 18)
        return &bad_length;
    for (size_t i = 0; i < value.n; i++) {
        if (value.p[i] < '0' || value.p[i] > '9')
            return &bad_length;
        size = size * 10 + (value.p[i] - '0');
    }
    if ((uint64_t)size > HTTP_BODY_STREAM_MAX)
        return &big_length;
    *out = size;
    return NULL;
}

static void check_connection(struct str value, struct framing *seen)
{
    while (value.n) {
        struct str option = str_trim(str_cut(&value, ','));

        if (str_eq_nocase(option, STR("close")))
            seen->close = true;
        else if (str_eq_nocase(option, STR("keep-alive")))
            seen->keep_alive = true;
    }
}

static inline bool named(struct str name, const char *word, size_t len)
{
    return memcmp(name.p, word, len) == 0;
}
#define NAMED(name, word) named(name, word, sizeof(word) - 1)

/*
 * Is there a tab anywhere in the line? It is legal white space, but programs disagree on trimming
 * it, so the two fields that say where a body ends may not have one.
 */
static bool has_tab(const struct http_header *field)
{
    const char *p = field->name.p + field->name.n;

    while (*p != '\r' && *p != '\t')
        p++;
    return *p == '\t';
}

static const struct h1_bad *check_field(struct h1_head *head, const struct http_header *field,
                                        struct framing *seen)
{
    switch (field->name.n) {
    case 4:
        if (!NAMED(field->name, "host"))
            break;
        if (seen->host)
            return &two_hosts;
        seen->host = true;
        head->host = field->value;
        return url_host_ok(field->value) ? NULL : &bad_host;
    case 6:
        if (!NAMED(field->name, "expect") || head->version == HTTP_1_0)
            break;
        head->expect_continue = true;
        return str_eq_nocase(field->value, STR("100-continue")) ? NULL : &bad_expect;
    case 10:
        if (NAMED(field->name, "connection"))
            check_connection(field->value, seen);
        break;
    case 14:
        if (!NAMED(field->name, "content-length"))
            break;
        if (seen->length)
            return &two_lengths;
        seen->length = true;
        if (has_tab(field))
            return &bad_length;
        return check_length(field->value, &head->body_size);
    case 17:
        if (!NAMED(field->name, "transfer-encoding"))
            break;
        if (seen->coding)
            return &two_codings;
        seen->coding = true;
        if (has_tab(field))
            return &bad_coding;
        return str_eq_nocase(field->value, STR("chunked")) ? NULL : &bad_coding;
    default:
        break;
    }
    return NULL;
}

static const struct h1_bad *check_meaning(struct h1_head *head)
{
    struct framing seen = { 0 };
    struct str target_host = STR_NONE;
    const struct h1_bad *bad = check_target(head, &target_host);

    head->host = STR_NONE;
    head->body_size = 0;
    head->expect_continue = false;
    for (size_t i = 0; i < head->count && !bad; i++)
        bad = check_field(head, &head->fields[i], &seen);
    if (bad)
        return bad;
    if (!seen.host && head->version != HTTP_1_0)
        return &no_host;
    if (seen.coding && seen.length)
        return &both_lengths;
    if (seen.coding && head->version == HTTP_1_0)
        return &coding_in_1_0;
    if (seen.coding)
        head->body_size = -1;
    if (target_host.n)
        head->host = target_host;
    head->keep_alive = !seen.close && (head->version == HTTP_1_1 || seen.keep_alive);
    return NULL;
}

int h1_head_finish(struct arena *arena, const char *data, size_t len, struct h1_head *head,
                   const struct h1_bad **bad)
{
    adopt(arena, data, len, head);
    *bad = check_meaning(head);
    return *bad ? -1 : 0;
}

bool h1_is_token(struct str text)
{
    for (size_t i = 0; i < text.n; i++)
        if (!token_chars[(unsigned char)text.p[i]])
            return false;
    return text.n > 0;
}

bool h1_is_value(struct str text)
{
    const char *end = text.p + text.n;

    for (const char *p = text.p; p < end; p++) {
        p = find_value_end(p, end);
        if (p < end && *p != '\t')
            return false;
    }
    return true;
}
