"""A sandbox that waited in a pool is the same as one that is made when it is asked for: policy, secrets, limits,
mounts, environment, identity, labels and records, whatever changed while it waited.

Each row of CHANGES is something that happens after the pool is full. Then one sandbox is taken out of the pool and
one is made anew with the same wish; both must be what the row says, and equal to each other."""
import os
import re
import signal

import egress_box
import harness
import pytest
import world
from harness import wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
BOXES, POOLS = "/api/v1/sandboxes", "/api/v1/pools"
POLICIES, PACKS, SECRETS = "/api/v1/egress/policies", "/api/v1/egress/packs", "/api/v1/secrets"
OWN, EVIL, TENANT, NODE, PROJECT = "own.example", "evil.example", "tenant.example", "node.example", "project.example"
PACKED, LATER, API = "packed.example", "later.example", "api.example"
HOSTS = [OWN, EVIL, TENANT, NODE, PROJECT, PACKED, LATER]
VALUE, OTHER = "sk-first-0123456789abcdef", "sk-second-0123456789abcdef"
ALLOWED = {OWN: (OWN, "sandbox"), EVIL: (EVIL, "sandbox"), PACKED: (PACKED, "sandbox")}


class Change:
    """What somebody does while the pool is full, and what it does to a sandbox that is made afterwards."""

    def __init__(self, do=lambda place: None, allowed=(), denied=(), key="first"):
        self.do, self.key = do, key
        self.rules = {host: ("denied", None, None) for host in HOSTS}
        self.rules |= {host: ("allowed", *rule) for host, rule in {**ALLOWED, **dict(allowed)}.items()}
        self.rules |= {host: ("denied", *rule) for host, rule in dict(denied).items()}


def layer(path, **policy):
    return lambda place: place.set(f"{POLICIES}/{path}", policy)


def secret(value, *hosts):
    return lambda place: place.set(f"{SECRETS}/KEY", {"value": value, "hosts": list(hosts)})


def no_secret(place):
    assert place.server.delete(f"{SECRETS}/KEY").status in (200, 204)


def secret_anew(place):
    no_secret(place)
    secret(OTHER, API)(place)


def pack(place):
    place.set(f"{PACKS}/mine", {"rules": [PACKED, LATER]})


def reload_settings(place):
    os.kill(place.server.warden_pid, signal.SIGHUP)
    place.server.wait_ready()


def pool_size(place):
    place.set(f"{POOLS}/{place.pool}", {"size": 2, "storage": place.storage})


def process_killed(role):
    def kill(place):
        old = place.process(role)
        os.kill(old, signal.SIGKILL)
        wait_until(lambda: place.process(role) not in (None, old), 20 * harness.SLOW, "another one")
        place.server.wait_ready()
        probe = place.make("probe", False)
        wait_until(lambda: place.server.get(f"{BOXES}/{probe}/egress").json()["linked"], 20 * harness.SLOW, "the link")
        assert place.server.delete(f"{BOXES}/{probe}").status == 200
        place.fill()

    return kill


CHANGES = {
    "nothing": Change(),
    "tenant": Change(layer("tenant", allow=[TENANT], deny=[EVIL]), {TENANT: (TENANT, "tenant")},
                     {EVIL: (EVIL, "tenant")}),
    "node": Change(layer("node", allow=[NODE], deny=[EVIL]), {NODE: (NODE, "node")}, {EVIL: (EVIL, "node")}),
    "project": Change(layer("projects/shop", allow=[PROJECT], deny=[EVIL]), {PROJECT: (PROJECT, "project")},
                      {EVIL: (EVIL, "project")}),
    "pack": Change(pack, {LATER: (LATER, "sandbox")}),
    "secret changed": Change(secret(OTHER, API), key="second"),
    "secret made anew": Change(secret_anew, key="second"),
    "secret removed": Change(no_secret, key=None),
    "settings read again": Change(reload_settings),
    "pool": Change(pool_size),
    "egress killed": Change(process_killed("egress")),
    "api killed": Change(process_killed("api")),
}


class Place:
    """The closed world, a server in it and, per storage, a pool that is kept full."""

    def __init__(self, here, storage):
        here.zone.update({host: ["45.1.0.1"] for host in [*HOSTS, API]})
        here.pages[API, "/who"] = lambda one: ("text/plain", {VALUE: b"first", OTHER: b"second"}.get(
            one.field("X-Api-Key"), b"nobody"))
        self.here, self.storage, self.pool = here, storage, f"pool-{storage}"
        self.server = egress_box.start_server(here)
        assert self.server.post("/agents/register", {"name": "ada", "type": "worker"}).status == 201
        assert self.server.post("/api/v1/volumes", {"name": "shelf", "bytes": 64 << 20}).status == 201
        pool_size(self)

    def set(self, path, wish):
        reply = self.server.request("PUT", path, json=wish)
        assert reply.status in (200, 201), reply

    def process(self, role):
        found = [pid for pid in harness.descendants(self.server.warden_pid)
                 if harness.cmdline(pid).split()[1:2] == [role] and harness.alive(pid)]
        return found[0] if len(found) == 1 else None

    def is_full(self):
        pools = {pool["name"]: pool for pool in self.server.get(POOLS).json()["items"]}
        return pools[self.pool]["ready"] == pools[self.pool]["size"]

    def fill(self):
        wait_until(self.is_full, 30, "a full pool")

    def begin(self):
        """As every row finds it."""
        secret(VALUE, API)(self)
        self.set(f"{PACKS}/mine", {"rules": [PACKED]})
        for path in ("node", "tenant", "projects/shop"):
            assert self.server.delete(f"{POLICIES}/{path}").status == 200
        # Those that wait may have been there while the last row changed something: this one wants fresh ones.
        self.set(f"{POOLS}/{self.pool}", {"size": 0})
        pool_size(self)
        self.fill()

    def make(self, name, warm, secret=True):
        held = {"secrets": ["KEY"], "inject": [f"{API} => X-Api-Key: {{secret:KEY}}"]} if secret else {}
        reply = self.server.post(BOXES, {
            "name": name, "warm": warm, "storage": self.storage, "ttl_ms": 600_000, "memory": 160 << 20, "pids": 77,
            "disk": 64 << 20, "cpu_percent": 150, "env": {"MINE": "yes"}, "labels": {"l": "m"},
            "volumes": [{"volume": "shelf", "path": "/shelf", "read_only": True}],
            "files": [{"path": "/workspace", "access": "write"}, {"path": "/shelf", "access": "read"}],
            "idle": {"after_ms": 500_000, "action": "pause"},
            "egress": {"allow": [OWN, EVIL, API], "packs": ["mine"], "project": "shop", "agent": "ada",
                       "max_connections": 50, **held},
        })
        assert reply.status == 201, reply
        assert reply.json()["start"] == ("warm" if warm else "cold"), reply
        return reply.json()["id"]


@pytest.fixture(scope="module", params=["memory", "disk"])
def place(request):
    with world.World() as here:
        made = Place(here, request.param)
        yield made
        harness.delete_boxes(made.server)
        made.server.stop()


CURL = "for h in {}; do curl -s -o /dev/null -w \"$h %{{http_code}}\\n\" -m 20 http://$h/; done"


def sh(server, box, command):
    got = harness.run_in(server, box, "sh", "-c", command)
    return (got["output"] + got["errors"]).rstrip("\n")


def records(server, box, count):
    def there():
        rows = server.get(f"{BOXES}/{box}/egress/records?limit=100").json()["items"]
        return rows if len(rows) >= count else None

    rows = wait_until(there, 10 * harness.SLOW, "records")
    return {row["host"]: (row["verdict"], row["rule"] or None) for row in rows}


VERDICTS = {"allowed": "allow", "denied": "deny"}  # in a record, and explained
# What differs between any two sandboxes.
VARIES = re.compile("|".join([
    r"view\.(id|name|start|create_us|created_at|changed_at|expires_at|used_at)",
    r"applied\.(uid|[ug]id_first|namespaces\.\w+\.inode)",
    r"policy\.(version|sent|received|used|allowed|denied)",
]))
NUMBERED = re.compile(r"\b(\d{9}|40265\d{5}|\d{16})\b")  # first user id, inode of a namespace, version of a policy


def leaves(value, path=""):
    """Every plain value in it, by its path."""
    if isinstance(value, dict):
        return {k: v for name, one in value.items() for k, v in leaves(one, f"{path}.{name}" if path else name).items()}
    if isinstance(value, list):
        return {k: v for i, one in enumerate(value) for k, v in leaves(one, f"{path}[{i}]").items()} | {
            f"{path}.count": len(value)}
    return {path: value}


def told(server, box):
    """All that the server says of it."""
    base = f"{BOXES}/{box}"

    def acknowledged():  # by the egress process, a moment after the sandbox is there
        return all(row["lost"] is None for row in server.get(f"{base}/applied").json()["layers"])

    wait_until(acknowledged, 20 * harness.SLOW, "all layers of it")
    said = {"view": server.get(base), "applied": server.get(f"{base}/applied"), "policy": server.get(f"{base}/egress")}
    said = leaves({name: reply.json() for name, reply in said.items()})
    return {path: value if not isinstance(value, str) else NUMBERED.sub("N", value.replace(box, "SELF"))
            for path, value in said.items() if not VARIES.fullmatch(path)}


def differences(one, other):
    return {path: (one.get(path), other.get(path)) for path in {**one, **other} if one.get(path) != other.get(path)}


def seen(server, box):
    """All that a program inside sees of it."""
    env = sh(server, box, "env | sort | grep -v '^ATOLL_EXEC='").replace(box, "SELF")
    return {"env": env, "shelf": sh(server, box, "ls -d /shelf; echo x > /shelf/x || echo fixed"),
            "who": sh(server, box, "id; ulimit -n; hostname").replace(box, "SELF"),
            "files": sh(server, box, "ls /var/lib; echo yes > /workspace/mine && cat /workspace/mine"),
            "hub": sh(server, box, "curl -s -m 20 http://atoll.internal/hub").replace(box, "SELF")}


def check(place, box, want):
    """What it gets, each with something that happens."""
    server, says = place.server, {"allowed": "200", "denied": "403"}  # codes of HTTP
    codes = dict(line.split() for line in sh(server, box, CURL.format(" ".join(HOSTS))).splitlines())
    assert codes == {host: says[rule[0]] for host, rule in want.rules.items()}
    kept = records(server, box, len(HOSTS))
    assert {host: kept.get(host) for host in HOSTS} == {host: rule[:2] for host, rule in want.rules.items()}
    for host, (verdict, rule, level) in want.rules.items():
        said = server.get(f"{BOXES}/{box}/egress/explain?url=http://{host}/").json()
        assert (said["verdict"], said["rule"], said["level"]) == (VERDICTS[verdict], rule, level), said
    answer = sh(server, box, f"curl -sS -m 20 https://{API}/who")
    assert (answer == want.key) if want.key else answer not in ("first", "second"), answer
    sees = seen(server, box)
    env = sees["env"]
    assert sees["hub"] == '{"sandbox":"SELF","agent":"ada"}' and "fixed" in sees["shelf"], sees
    assert "yes" in sees["files"] and "denied" in sees["files"], sees
    limits = server.get(f"{BOXES}/{box}/applied").json()["limits"]
    assert (limits["memory"], limits["pids"]) == (160 << 20, 77), limits
    assert ("\nKEY=atoll-held-" in f"\n{env}") == bool(want.key), env
    assert "MINE=yes" in env and ("SSL_CERT_FILE=" in env) == bool(want.key), env


@pytest.mark.parametrize("what", CHANGES)
def test_warm_is_cold(place, what):
    server, want = place.server, CHANGES[what]
    place.begin()
    waiting = {path.name for path in (server.state / "boxes").iterdir()}
    want.do(place)
    if what != "api killed":  # its sandboxes are made anew
        assert {path.name for path in (server.state / "boxes").iterdir()} == waiting, "they have waited all the time"
    warm, cold = (place.make(name, name == "warm", bool(want.key)) for name in ("warm", "cold"))
    try:
        for box in (warm, cold):
            check(place, box, want)
        for look in (told, seen):
            found = differences(look(server, warm), look(server, cold))
            assert not found, f"{look.__name__}: {found}"
    finally:
        for box in (warm, cold):
            assert server.delete(f"{BOXES}/{box}").status == 200
