/* Which names a listener answers to. */
#include "daemon/hosts.h"

#include <stdio.h>

#include "base/buf.h"
#include "base/test.h"

static void check_hosts(const char *text, bool tls, const char *expected)
{
    static const char *const own[] = { "192.0.2.7", "[2001:db8::7]", "127.0.0.1", "box7", NULL };
    autoarena struct arena arena = { 0 };
    struct hosts hosts = { 0 };
    autobuf struct buf got = { 0 };

    hosts_of_listener(&hosts, &arena, text, tls, own);
    for (size_t i = 0; i < hosts.count; i++)
        buf_printf(&got, "%s%s", i ? " " : "", hosts.items[i]);
    CHECK(!hosts.items[hosts.count]);
    CHECK_STR(buf_cstr(&got), expected);
}

TEST(a_listener_answers_to_its_address_and_loopback_to_localhost)
{
    check_hosts("127.0.0.1:8080", false, "127.0.0.1:8080 localhost:8080");
    check_hosts("127.0.0.2:8080", false, "127.0.0.2:8080 localhost:8080");
    check_hosts("[::1]:8080", false, "[::1]:8080 localhost:8080");
    check_hosts("192.0.2.7:8080", false, "192.0.2.7:8080");
    check_hosts("unix:/x/y:z", false, "");
}

TEST(the_port_of_the_scheme_may_be_left_out)
{
    check_hosts("192.0.2.7:80", false, "192.0.2.7:80 192.0.2.7");
    check_hosts("192.0.2.7:80", true, "192.0.2.7:80");
    check_hosts("192.0.2.7:443", true, "192.0.2.7:443 192.0.2.7");
    check_hosts("[::1]:443", true, "[::1]:443 [::1] localhost:443 localhost");
}

TEST(a_listener_on_all_addresses_answers_to_each_of_them)
{
    check_hosts("0.0.0.0:8080", false, "localhost:8080 127.0.0.1:8080 192.0.2.7:8080 box7:8080");
    check_hosts("[::]:8080", false, "localhost:8080 [::1]:8080 [2001:db8::7]:8080 box7:8080");
}

TEST(the_machine_knows_its_loopback_address)
{
    autoarena struct arena arena = { 0 };
    bool found = false;

    for (const char *const *own = hosts_own(&arena); *own; own++)
        found = found || strcmp(*own, "127.0.0.1") == 0;
    CHECK(found);
}

TEST(the_list_is_bounded)
{
    autoarena struct arena arena = { 0 };
    struct hosts hosts = { 0 };

    for (int i = 0; i < HOSTS_MAX + 10; i++)
        hosts_add(&hosts, &arena, arena_printf(&arena, "h%d", i));
    hosts_add(&hosts, &arena, "h0");
    CHECK_INT(hosts.count, HOSTS_MAX);
    CHECK(!hosts.items[HOSTS_MAX]);
}
