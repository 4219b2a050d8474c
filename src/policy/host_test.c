#include "policy/host.h"

#include "base/test.h"
#include "policy/rule.h"

#define TEN "abcdefghij"
#define LABEL63 TEN TEN TEN TEN TEN TEN "abc"
#define NAME253 LABEL63 "." LABEL63 "." LABEL63 "." TEN TEN TEN TEN TEN TEN "a"

TEST(host_takes_names_and_addresses_in_one_form)
{
    static const struct {
        const char *text, *want;
        enum host_kind kind;
    } rows[] = {
        { "example.org", "example.org", HOST_NAME },
        { "EXAMPLE.Org", "example.org", HOST_NAME },
        { "example.org.", "example.org", HOST_NAME },
        { "localhost", "localhost", HOST_NAME },
        { "a", "a", HOST_NAME },
        { "xn--bcher-kva.example", "xn--bcher-kva.example", HOST_NAME },
        { "r3---sn-x.example", "r3---sn-x.example", HOST_NAME },
        { "1and1.example", "1and1.example", HOST_NAME },
        { "1.2.3.4.example", "1.2.3.4.example", HOST_NAME },
        { "0x7f.example", "0x7f.example", HOST_NAME },
        { "1.2.3.4", "1.2.3.4", HOST_ADDR },
        { "255.255.255.255", "255.255.255.255", HOST_ADDR },
        { "[2001:DB8:0:0::1]", "2001:db8::1", HOST_ADDR },
        { "[::]", "::", HOST_ADDR },
        { LABEL63 ".x", LABEL63 ".x", HOST_NAME },
        { NAME253, NAME253, HOST_NAME },
        { NAME253 ".", NAME253, HOST_NAME },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err err = { 0 };
        struct host host;

        if (host_parse(str_of(rows[i].text), &host, &err) < 0)
            test_fail(__FILE__, __LINE__, "%s: %s", rows[i].text, err.msg);
        CHECK_STR(host.text, rows[i].want);
        CHECK_INT(host.len, strlen(rows[i].want));
        CHECK_INT(host.kind, rows[i].kind);
    }
}

TEST(host_refuses_every_other_spelling)
{
    static const char *const rows[] = {
        "",
        ".",
        "..",
        "a..b",
        ".a",
        "a..",
        "-a.b",
        "a-.b",
        "a.-",
        "a_b.c",
        "a b",
        " a",
        "a ",
        "a\t",
        "a\n",
        "a\r\nb",
        "a%00",
        "a%2eb",
        "user@a",
        "a/b",
        "a\\b",
        "a#b",
        "a?b",
        "a,b",
        "a;b",
        "a:b",
        "a'b",
        "\"a\"",
        "b\xc3\xbc"
        "cher.example",
        "a\xe3\x80\x82"
        "b",
        "a*b",
        "*.a",
        "*",
        "a\x7f",
        /* loopback and metadata, as other programs would read them */
        "127.1",
        "127.0.1",
        "2130706433",
        "0x7f.1",
        "0x7f000001",
        "0177.0.0.1",
        "017700000001",
        "0",
        "127.0.0.1.",
        "127.0.0.01",
        "127.0.0.256",
        "1.2.3.4.5",
        "1.2.3",
        "0x7f.0.0.1",
        "1.2.3.0x4",
        "a.0x",
        "a.1",
        "a.0xff",
        "1.2.3.4x.5",
        "+1.2.3.4",
        "1.2.3.-4",
        "::1",
        "[::1",
        "::1]",
        "[]",
        "[a]",
        "[1.2.3.4]",
        "[::1%25lo]",
        "[::1%lo]",
        "[fe80::1%1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "[::1]x",
        "[[::1]]",
        "[v1.x]",
        LABEL63 "x.a",
        NAME253 "x",
    };
    struct host host;

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (host_parse(str_of(rows[i]), &host, NULL) == 0)
            test_fail(__FILE__, __LINE__, "\"%s\" was taken", rows[i]);
    CHECK(host_parse(((struct str){ "a\0b", 3 }), &host, NULL) < 0);
    CHECK(host_parse(((struct str){ "1.2.3.4\0", 8 }), &host, NULL) < 0);
    CHECK(host_parse_name(STR("1.2.3.4"), &host, NULL) < 0);
    CHECK(host_parse_name(STR("[::1]"), &host, NULL) < 0);
}

TEST(port_is_1_to_5_digits)
{
    static const char *const bad[] = { "",    "0",    "00",    "080",   "+80",    "-1", " 80",
                                       "80 ", "0x50", "65536", "65979", "100000", "8a", "99999" };
    uint16_t port = 7;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        CHECK(!host_port_number(str_of(bad[i]), &port));
    CHECK_INT(port, 7);
    CHECK(host_port_number(STR("1"), &port) && port == 1);
    CHECK(host_port_number(STR("65535"), &port) && port == 65535);
}

TEST(host_port_needs_exactly_one_port_or_none)
{
    static const char *const bad[] = { "a:",      "a:0",      "a:80:80", ":80",
                                       "[::1]80", "[::1]:",   "::1:80",  "[::1]:80:80",
                                       "a:080",   "u:p@a:80", "[::1",    "1.2.3:80" };
    struct host host;
    uint16_t port;
    char text[HOST_PORT_SIZE];

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (host_port_parse(str_of(bad[i]), 443, &host, &port, NULL) == 0)
            test_fail(__FILE__, __LINE__, "\"%s\" was taken", bad[i]);
    CHECK(host_port_parse(STR("a"), 0, &host, &port, NULL) < 0);
    CHECK(host_port_parse(STR("a"), 443, &host, &port, NULL) == 0 && port == 443);
    CHECK(host_port_parse(STR("[2001:db8::1]:8443"), 0, &host, &port, NULL) == 0 && port == 8443);
    host_port_text(&host, port, text);
    CHECK_STR(text, "[2001:db8::1]:8443");
    host_port_text(&host, 0, text);
    CHECK_STR(text, "[2001:db8::1]");
}

TEST(url_is_taken_apart_strictly)
{
    static const char *const bad[] = { "",
                                       "a",
                                       "ftp://a/",
                                       "http:/a",
                                       "http://",
                                       "http:///x",
                                       "http://a b/",
                                       "http://a/#x",
                                       "http://u@a/",
                                       "http://a?x",
                                       "http://a\\b/",
                                       "http://a:0/",
                                       "https://a/\x01",
                                       "//a/",
                                       "http://a:80:80/",
                                       "http://127.1/" };
    struct host_url url;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (host_url_parse(str_of(bad[i]), &url, NULL) == 0)
            test_fail(__FILE__, __LINE__, "\"%s\" was taken", bad[i]);
    CHECK(host_url_parse(STR("HTTPS://Example.org/a/b?c=/d"), &url, NULL) == 0);
    CHECK(url.tls && url.port == 443 && str_is(url.path, "/a/b?c=/d"));
    CHECK_STR(url.host.text, "example.org");
    CHECK(host_url_parse(STR("http://a"), &url, NULL) == 0);
    CHECK(!url.tls && url.port == 80 && str_is(url.path, "/"));
}

TEST(addresses_have_a_class)
{
    static const struct {
        const char *text;
        enum addr_class class;
    } rows[] = {
        { "8.8.8.8", ADDR_PUBLIC },
        { "0.0.0.0", ADDR_UNSPECIFIED },
        { "0.255.255.255", ADDR_UNSPECIFIED },
        { "1.0.0.0", ADDR_PUBLIC },
        { "9.255.255.255", ADDR_PUBLIC },
        { "10.0.0.0", ADDR_PRIVATE },
        { "10.255.255.255", ADDR_PRIVATE },
        { "11.0.0.0", ADDR_PUBLIC },
        { "100.63.255.255", ADDR_PUBLIC },
        { "100.64.0.0", ADDR_SHARED },
        { "100.127.255.255", ADDR_SHARED },
        { "100.128.0.0", ADDR_PUBLIC },
        { "100.100.100.200", ADDR_METADATA },
        { "127.0.0.1", ADDR_LOOPBACK },
        { "127.255.255.255", ADDR_LOOPBACK },
        { "128.0.0.0", ADDR_PUBLIC },
        { "168.63.129.16", ADDR_METADATA },
        { "168.63.129.17", ADDR_PUBLIC },
        { "169.254.0.1", ADDR_LINK_LOCAL },
        { "169.254.169.254", ADDR_METADATA },
        { "169.254.170.2", ADDR_METADATA },
        { "169.255.0.0", ADDR_PUBLIC },
        { "172.15.255.255", ADDR_PUBLIC },
        { "172.16.0.0", ADDR_PRIVATE },
        { "172.31.255.255", ADDR_PRIVATE },
        { "172.32.0.0", ADDR_PUBLIC },
        { "192.0.0.1", ADDR_RESERVED },
        { "192.0.0.192", ADDR_METADATA },
        { "192.0.1.0", ADDR_PUBLIC },
        { "192.0.2.1", ADDR_DOCUMENTATION },
        { "192.88.99.1", ADDR_RESERVED },
        { "192.168.0.0", ADDR_PRIVATE },
        { "192.169.0.0", ADDR_PUBLIC },
        { "198.17.255.255", ADDR_PUBLIC },
        { "198.18.0.0", ADDR_BENCHMARK },
        { "198.19.255.255", ADDR_BENCHMARK },
        { "198.20.0.0", ADDR_PUBLIC },
        { "198.51.100.1", ADDR_DOCUMENTATION },
        { "203.0.113.1", ADDR_DOCUMENTATION },
        { "223.255.255.255", ADDR_PUBLIC },
        { "224.0.0.1", ADDR_MULTICAST },
        { "239.255.255.255", ADDR_MULTICAST },
        { "240.0.0.0", ADDR_RESERVED },
        { "255.255.255.255", ADDR_RESERVED },
        { "::", ADDR_UNSPECIFIED },
        { "::1", ADDR_LOOPBACK },
        { "::2", ADDR_EMBEDDED },
        { "::7f00:1", ADDR_EMBEDDED },
        { "::ffff:8.8.8.8", ADDR_EMBEDDED },
        { "::ffff:0:7f00:1", ADDR_EMBEDDED },
        { "64:ff9b::808:808", ADDR_EMBEDDED },
        { "64:ff9b:1::1", ADDR_EMBEDDED },
        { "64:ff9b:2::1", ADDR_RESERVED },
        { "100::1", ADDR_RESERVED },
        { "2000::1", ADDR_PUBLIC },
        { "2001::1", ADDR_EMBEDDED },
        { "2001:2::1", ADDR_BENCHMARK },
        { "2001:10::1", ADDR_RESERVED },
        { "2001:1ff:ffff::1", ADDR_RESERVED },
        { "2001:200::1", ADDR_PUBLIC },
        { "2001:db8::1", ADDR_DOCUMENTATION },
        { "2001:4860:4860::8888", ADDR_PUBLIC },
        { "2002:808:808::1", ADDR_EMBEDDED },
        { "2003::1", ADDR_PUBLIC },
        { "3fff::1", ADDR_DOCUMENTATION },
        { "3fff:1000::", ADDR_PUBLIC },
        { "4000::1", ADDR_RESERVED },
        { "5f00::1", ADDR_RESERVED },
        { "fbff::1", ADDR_RESERVED },
        { "fc00::1", ADDR_PRIVATE },
        { "fd00:ec2::254", ADDR_METADATA },
        { "fd20:ce::254", ADDR_METADATA },
        { "fdff::1", ADDR_PRIVATE },
        { "fe80::1", ADDR_LINK_LOCAL },
        { "febf::1", ADDR_LINK_LOCAL },
        { "fec0::1", ADDR_PRIVATE },
        { "ff02::1", ADDR_MULTICAST },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct addr addr;

        CHECK(addr_parse(str_of(rows[i].text), &addr));
        if (addr_class(&addr) != rows[i].class)
            test_fail(__FILE__, __LINE__, "%s is %s", rows[i].text,
                      addr_class_name(addr_class(&addr)));
    }
}

TEST(a_mapped_address_of_a_socket_is_what_it_maps)
{
    static const unsigned char mapped[16] = { [10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1 };
    struct addr addr = addr_from_bytes(mapped, 16);
    char text[ADDR_TEXT_SIZE];

    addr_text(&addr, text);
    CHECK_STR(text, "127.0.0.1");
    CHECK_INT(addr_class(&addr), ADDR_LOOPBACK);
}

TEST(rules_are_read_strictly_and_written_one_way)
{
    static const struct {
        const char *text, *want; /* NULL: refused */
    } rows[] = {
        { "example.org", "example.org" },
        { "*.Example.org.", "*.example.org" },
        { ".example.org:443", ".example.org:443" },
        { "example.org:*", "example.org:*" },
        { "example.org GET", "example.org GET" },
        { "example.org HEAD,GET /a/", "example.org GET,HEAD /a/" },
        { "example.org * /a", "example.org * /a" },
        { "example.org *", "example.org" },
        { "8.8.8.8", "8.8.8.8" },
        { "8.8.8.8/32", "8.8.8.8" },
        { "10.0.0.0/8:5432", "10.0.0.0/8:5432" },
        { "0.0.0.0/0", "0.0.0.0/0" },
        { "2001:DB8::/32", "2001:db8::/32" },
        { "[2001:db8::/32]:53", "[2001:db8::/32]:53" },
        { "[2001:db8::1]", "2001:db8::1" },
        { "2001:db8::1", "2001:db8::1" },
        { "", NULL },
        { " a", NULL },
        { "a ", NULL },
        { "a  GET", NULL },
        { "a GET /x y", NULL },
        { "a\tGET", NULL },
        { "*", NULL },
        { "*.", NULL },
        { ".", NULL },
        { "*a.org", NULL },
        { "a.*.org", NULL },
        { "*.*.org", NULL },
        { "..org", NULL },
        { "*.1.2.3.4", NULL },
        { ".8.8.8.8", NULL },
        { "a:", NULL },
        { "a:0", NULL },
        { "a:65536", NULL },
        { "a:80:90", NULL },
        { "[a]:80", NULL },
        { "[8.8.8.8]:80", NULL },
        { "[2001:db8::1]80", NULL },
        { "[2001:db8::1", NULL },
        { "10.0.0.1/8", NULL },
        { "10.0.0.0/33", NULL },
        { "10.0.0.0/08", NULL },
        { "10.0.0.0/", NULL },
        { "10.0/8", NULL },
        { "a.org/8", NULL },
        { "::ffff:1.2.3.4", NULL },
        { "::ffff:0:0/96", NULL },
        { "2002::/16", NULL },
        { "8.8.8.8 GET", NULL },
        { "a get", NULL },
        { "a GET,GET", NULL },
        { "a GET,", NULL },
        { "a TRACE", NULL },
        { "a GET x", NULL },
        { "a GET /x?y", NULL },
        { "a GET /a/../b", NULL },
        { "a GET /a//b", NULL },
        { "a GET /%2e", NULL },
        { "https://a.org/", NULL },
        { "a.org/path", NULL },
        { "u@a.org", NULL },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        autobuf struct buf text = { 0 };
        struct rule rule;
        int rc = rule_parse(str_of(rows[i].text), &rule, NULL);

        if (rc == 0)
            rule_text(&rule, &text);
        if ((rc == 0) != (rows[i].want != NULL))
            test_fail(__FILE__, __LINE__, "\"%s\" was %s", rows[i].text, rc ? "refused" : "taken");
        if (rc == 0)
            CHECK_STR(buf_cstr(&text), rows[i].want);
    }
}

TEST(a_rule_has_its_limits)
{
    char text[RULE_TEXT_MAX + 2];
    struct rule rule;

    memset(text, 'a', sizeof(text));
    memcpy(text, "a.org GET /", 11);
    CHECK(rule_parse((struct str){ text, 10 + RULE_PATH_MAX }, &rule, NULL) == 0);
    CHECK(rule_parse((struct str){ text, 11 + RULE_PATH_MAX }, &rule, NULL) < 0);
    CHECK(rule_parse((struct str){ text, RULE_TEXT_MAX + 1 }, &rule, NULL) < 0);
}

TEST(paths_are_prefixes_of_whole_segments)
{
    static const struct {
        const char *prefix, *path;
        enum rule_path want;
    } rows[] = {
        { "/a", "/a", RULE_PATH_IN },         { "/a", "/a/", RULE_PATH_IN },
        { "/a", "/a/b?c", RULE_PATH_IN },     { "/a", "/a?c=/../", RULE_PATH_IN },
        { "/a", "/ab", RULE_PATH_OUT },       { "/a/", "/a", RULE_PATH_OUT },
        { "/a/", "/a/b", RULE_PATH_IN },      { "/", "/anything", RULE_PATH_IN },
        { "/a", "/A", RULE_PATH_OUT },        { "/a", "/%61/b", RULE_PATH_IN },
        { "/%61", "/a", RULE_PATH_IN },       { "/a", "/%6", RULE_PATH_ODD },
        { "/a", "/a/../b", RULE_PATH_ODD },   { "/a", "/a/%2e%2e/b", RULE_PATH_ODD },
        { "/a", "/a/..;x/b", RULE_PATH_ODD }, { "/a", "/a/./b", RULE_PATH_ODD },
        { "/a", "/a//b", RULE_PATH_ODD },     { "/a", "//a", RULE_PATH_ODD },
        { "/a", "/a%2fb", RULE_PATH_ODD },    { "/a", "/a\\b", RULE_PATH_ODD },
        { "/a", "/a%5cb", RULE_PATH_ODD },    { "/a", "/a%00", RULE_PATH_ODD },
        { "/a", "/a%252fb", RULE_PATH_ODD },  { "/a", "/a\x80", RULE_PATH_ODD },
        { "/a", "", RULE_PATH_ODD },          { "/a", "*", RULE_PATH_ODD },
        { "/a", "a", RULE_PATH_ODD },         { "/a", "/a#b", RULE_PATH_ODD },
        { "/a", "/a/%c3%bc", RULE_PATH_IN },  { "/a", "/a/..", RULE_PATH_ODD },
        { "/a", "/a/;x", RULE_PATH_ODD },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (rule_path_match(str_of(rows[i].prefix), str_of(rows[i].path)) != rows[i].want)
            test_fail(__FILE__, __LINE__, "%s and %s", rows[i].prefix, rows[i].path);
}
