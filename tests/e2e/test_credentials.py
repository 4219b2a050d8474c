"""Secrets that a sandbox uses and never has: real programs inside, in the closed world, with nothing set by hand.
What they trust, what stands in their environment and where it is replaced is all the server's doing."""
import base64
import os
import pathlib
import re
import secrets as random_
import shutil
import signal

import egress_box
import harness
import images
import pytest
import test_egress_clients as clients
import test_image
import world
from harness import wait_until
from images import entry, folder, symlink

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
API, GIT, PIP, NPM = "api.shop.example", "code.git.example", "packages.python.example", "packages.node.example"
HOSTS = [API, GIT, PIP, NPM]
FREE = "free.example"
NO = b"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"x\"\r\nContent-Length: 0\r\n\r\n"
NAMES = {"API_KEY": API, "GIT_TOKEN": GIT, "PIP_TOKEN": PIP, "NPM_TOKEN": NPM}


def basic(user, value):
    return "Basic " + base64.b64encode(f"{user}:{value}".encode()).decode()


class Place:
    """The world with hosts that want a credential, and a server that holds it."""

    def __init__(self, here):
        self.here = here
        self.values = {name: "sk-" + random_.token_hex(16) for name in NAMES}
        here.zone.update({host: ["45.1.0.1"] for host in [*HOSTS, FREE, "other.example"]})
        here.strict.update([GIT, PIP, NPM])
        clients.python_pages(here.pages)
        clients.node_pages(here.pages)
        clients.git_pages(here.pages, here.directory)
        wanted = {GIT: basic("x-access-token", self.values["GIT_TOKEN"]), PIP: basic("any", self.values["PIP_TOKEN"]),
                  NPM: f"Bearer {self.values['NPM_TOKEN']}"}
        for (host, path), page in list(here.pages.items()):
            here.pages[host, path] = lambda one, page=page, want=wanted[host]: \
                page if one.field("Authorization") == want else NO
        here.pages[API, "/who"] = self.who
        self.server = egress_box.start_server(here, args=["--log-level", "debug"])
        self.replies = []
        plain = self.server.request

        def request(*args, **kw):
            reply = plain(*args, **kw)
            self.replies.append(reply.body)
            return reply

        self.server.request = request
        for name, host in NAMES.items():
            reply = self.server.request("PUT", f"/api/v1/secrets/{name}", {"value": self.values[name], "hosts": [host]})
            assert reply.status == 201, reply

    def who(self, one):
        known = self.values["API_KEY"] in (one.field("X-Api-Key"), (one.field("Authorization") or "")[7:])
        # It hands back what it was sent: nothing of it may arrive.
        return ("text/plain", f"{'known' if known else 'stranger'} {one.head.decode()}".encode())

    def box(self, **egress):
        return egress_box.Box(self.server, {"allow": [*HOSTS, FREE, "other.example"], **egress})

    def heads(self, host):
        return [one.head.decode() for one in self.here.requests if one.host == host]


@pytest.fixture(scope="module")
def place():
    with world.World() as here:
        made = Place(here)
        yield made
        harness.delete_boxes(made.server)
        made.server.stop()


RULES = [f"{API} => X-Api-Key: {{secret:API_KEY}}",
         f"{GIT} => Authorization: Basic {{basic:x-access-token:GIT_TOKEN}}",
         f"{PIP} => Authorization: Basic {{basic:any:PIP_TOKEN}}",
         f"{NPM} => Authorization: Bearer {{secret:NPM_TOKEN}}"]


@pytest.fixture(scope="module")
def ruled(place):
    """Rules set the headers: programs know nothing."""
    box = place.box(inject=RULES)
    box.put("/workspace/Get.java", JAVA.encode())
    return box


@pytest.fixture(scope="module")
def held(place):
    """Programs find what looks like a credential in their environment."""
    box = place.box(secrets=[*NAMES])
    box.put("/workspace/Get.java", JAVA.encode())
    return box


QUIET = "HOME=/workspace PIP_DISABLE_PIP_VERSION_CHECK=1 npm_config_update_notifier=false npm_config_fund=false " \
        "npm_config_audit=false npm_config_cache=/workspace/npm GIT_TERMINAL_PROMPT=0 NODE_USE_ENV_PROXY=1"
WAYS = {"proxy": f"env {QUIET}",
        "plain": f"env -u HTTP_PROXY -u HTTPS_PROXY -u http_proxy -u https_proxy {QUIET}"}
NODE = "fetch(process.argv[1], {headers: process.argv[2] ? {Authorization: process.argv[2]} : {}})" \
       ".then(r => r.text()).then(t => console.log(t)).catch(e => {console.log(e, e.cause); process.exit(1)})"
URLLIB = "import sys, urllib.request as u; print(u.urlopen(u.Request(sys.argv[1], headers=dict(" \
         "[a.split(chr(61), 1) for a in sys.argv[2:]])), timeout=30).read().decode())"
JAVA = """
import java.net.*;
public class Get {
    public static void main(String[] a) throws Exception {
        URLConnection c = new URL(a[0]).openConnection();
        if (a.length > 1) c.setRequestProperty("Authorization", a[1]);
        System.out.println(new String(c.getInputStream().readAllBytes()));
    }
}
"""
INSTALL = "rm -rf js && mkdir js && cd js && {}npm install --silent --prefix . --registry https://" + NPM + \
          "/ reef && cat node_modules/reef/index.js"
# name: (program, with rules, with placeholders, what it prints)
CLIENTS = {
    "curl": ("curl", f"curl -sS -m 30 https://{API}/who",
             f'curl -sS -m 30 -H "Authorization: Bearer $API_KEY" https://{API}/who', "known"),
    "urllib": ("python3", f"python3 -c '{URLLIB}' https://{API}/who",
               f"python3 -c '{URLLIB}' https://{API}/who \"Authorization=Bearer $API_KEY\"", "known"),
    "node": ("node", f"node -e '{NODE}' https://{API}/who", f"node -e '{NODE}' https://{API}/who \"Bearer $API_KEY\"",
             "known"),
    "java": ("java", f"java Get.java https://{API}/who", f'java Get.java https://{API}/who "Bearer $API_KEY"', "known"),
    "git": ("git", f"rm -rf got && git clone -q https://{GIT}/shells.git got && cat got/shell.txt",
            f"rm -rf got && git clone -q https://x-access-token:$GIT_TOKEN@{GIT}/shells.git got && cat got/shell.txt",
            "a shell"),
    "pip": ("pip3", "rm -rf lib && python3 -m pip install -q --no-deps --no-cache-dir --target lib "
            f"--index-url https://{PIP}/simple/ coral && cat lib/coral.py",
            "rm -rf lib && python3 -m pip install -q --no-deps --no-cache-dir --target lib "
            f"--index-url https://any:$PIP_TOKEN@{PIP}/simple/ coral && cat lib/coral.py", "VERSION = '1.0'"),
    "npm": ("npm", INSTALL.format(""), INSTALL.format(f"echo //{NPM}/:_authToken=$NPM_TOKEN > .npmrc && "), "42"),
}


def run(box, command, way="proxy", seconds=100):
    return box.run(f"cd /workspace && {WAYS[way]} sh -c {egress_box.quote(command)}", seconds)


@pytest.mark.timeout(150)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["ruled", "held"])
@pytest.mark.parametrize("name", CLIENTS)
def test_client(place, ruled, held, name, kind, way):
    program, plain, with_held, want = CLIENTS[name]
    if not shutil.which(program):
        pytest.skip(f"{program} is not installed")
    box, command = (ruled, plain) if kind == "ruled" else (held, with_held)
    output, errors, status = run(box, command, way)
    assert status == 0 and want in output, (output, errors)
    for value in place.values.values():
        assert value not in output + errors


def test_what_the_environment_says(place, held, ruled):
    env = dict(line.split("=", 1) for line in held.sh("env").splitlines() if "=" in line)
    for name in NAMES:
        assert re.fullmatch("atoll-held-[0-9a-f]{29}", env[name]), env[name]
    for name in ("SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "GIT_SSL_CAINFO",
                 "CARGO_HTTP_CAINFO"):
        assert env[name] == "/etc/ssl/atoll/bundle.pem"
    assert env["NODE_EXTRA_CA_CERTS"] == "/etc/ssl/atoll/ca.pem"
    for lower, upper in (("http_proxy", "HTTP_PROXY"), ("https_proxy", "HTTPS_PROXY"), ("no_proxy", "NO_PROXY")):
        assert env[lower] == env[upper]
    assert not set(NAMES) & set(ruled.sh("env").replace("=", "\n").splitlines())
    # A command's own setting wins, and a sandbox in which nothing is opened has none of it.
    reply = place.server.post(f"{held.base}/execs?wait=20000", {"command": "echo $API_KEY", "env": {"API_KEY": "mine"}})
    assert reply.json()["output"] == "mine\n"
    other = place.box()
    assert not re.findall("SSL_CERT_FILE|atoll-held", other.sh("env; ls /etc/ssl"))
    assert "atoll" not in other.sh("ls /etc/ssl")


def test_without_any_variable(place, ruled):
    """The system's own stores know the authority too, and there is exactly one of it."""
    bare = "env -i PATH=$PATH HOME=/workspace"
    assert "known" in ruled.sh(f"{bare} curl -sS -m 30 https://{API}/who")
    assert "known" in ruled.sh(f"{bare} python3 -c {egress_box.quote(URLLIB)} https://{API}/who")
    bundle = ruled.get("/etc/ssl/certs/ca-certificates.crt").decode()
    mine = ruled.sh("cat /etc/ssl/atoll/ca.pem")
    assert bundle.count(mine) == 1 and bundle.count("# atoll:") == 2 and bundle.count("BEGIN CERTIFICATE") > 50
    assert ruled.sh("openssl verify -CApath /etc/ssl/certs /etc/ssl/atoll/ca.pem").endswith("OK\n")


def test_what_java_trusts(place, ruled):
    """Its own store has one authority more, and the others as they were, as Java's own program reads it."""
    if not shutil.which("keytool"):
        pytest.skip("keytool is not installed")

    def entries(box):
        listed = box.sh("keytool -list -cacerts -storepass changeit 2>/dev/null")
        return dict(re.findall(r"^(\S+),.*\n.*: ([0-9A-F:]+)$", listed, re.M))

    mine, others = entries(ruled), entries(place.box())
    print_ = ruled.sh("openssl x509 -in /etc/ssl/atoll/ca.pem -noout -fingerprint -sha256").strip().split("=")[1]
    assert len(others) > 50 and mine == {**others, "atoll": print_}


BUNDLE = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
IMAGES = {
    "fedora": ([folder("etc/pki"), folder("etc/pki/tls"), folder("etc/pki/tls/certs"), folder("etc/pki/ca-trust"),
                folder("etc/pki/ca-trust/extracted"), folder("etc/pki/ca-trust/extracted/pem"),
                entry("etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", BUNDLE),
                symlink("etc/pki/tls/certs/ca-bundle.crt", "../../ca-trust/extracted/pem/tls-ca-bundle.pem")],
               "/etc/pki/tls/certs/ca-bundle.crt"),
    "alpine": ([folder("etc/ssl"), folder("etc/ssl/certs"), entry("etc/ssl/certs/ca-certificates.crt", BUNDLE[:-1]),
                symlink("etc/ssl/cert.pem", "certs/ca-certificates.crt")], "/etc/ssl/certs/ca-certificates.crt"),
    "none": ([], "/etc/ssl/atoll/ca.pem"),
    "odd": ([folder("etc/ssl"), symlink("etc/ssl/cert.pem", "/dev/zero"), folder("etc/ssl/ca-bundle.pem")],
            "/etc/ssl/atoll/ca.pem"),
}


@pytest.mark.parametrize("storage", ["memory", "disk"])
@pytest.mark.parametrize("name", IMAGES)
def test_images(place, name, storage):
    """Whatever an image has of a bundle trusts it too; links stay links, and its own variable does not win."""
    server, (more, bundle) = place.server, IMAGES[name]
    layer = test_image.base_layer(*more)
    data = images.oci([layer], Env=["SSL_CERT_FILE=/opt/own.pem", "PATH=/bin"])
    assert test_image.send(server, name, data).status in (201, 409)
    box = egress_box.Box(server, {"allow": HOSTS, "inject": RULES[:1]}, image=name, storage=storage)
    mine = box.get("/etc/ssl/atoll/ca.pem").decode()
    assert mine.startswith("-----BEGIN") and box.sh("echo $SSL_CERT_FILE") == "/etc/ssl/atoll/bundle.pem\n"
    assert box.sh("readlink /etc/ssl/atoll/bundle.pem") == bundle + "\n"
    whole = box.get("/etc/ssl/atoll/bundle.pem").decode()
    assert whole == mine if bundle.endswith("/ca.pem") else whole == (
        BUNDLE + "# atoll: the authority of this sandbox\n" + mine + "# atoll: end\n"), whole
    for info, _ in more:
        if info.issym():
            assert box.sh(f"readlink /{info.name}") == info.linkname + "\n"


# ---- where it does not go ----


def test_a_secret_is_for_its_hosts_alone(place):
    """Whatever rules say; and a host that is not opened is not looked into."""
    value = place.values["API_KEY"]
    box = place.box(inject=[f"{FREE} => X-Api-Key: {{secret:API_KEY}}", f"{API} => X-Api-Key: {{secret:API_KEY}}"],
                    secrets=["MINE=API_KEY"])
    place.here.requests.clear()
    box.sh(f"curl -sS -m 30 -H \"X-Mine: $MINE\" https://{FREE}/a")
    assert "known" in box.sh(f"curl -sS -m 30 https://{API}/who")
    box.sh(f"curl -sS -m 30 -H \"X-Mine: $MINE\" --cacert /workspace/none https://other.example/ || true")
    head, = place.heads(FREE)
    assert value not in head and "atoll-held-" in head, head
    box.put("/workspace/ca.pem", place.here.authority.path.read_bytes())
    box.sh("curl -sS -m 30 --cacert /workspace/ca.pem -H \"X-Mine: $MINE\" https://other.example/")
    head, = place.heads("other.example")
    assert value not in head and "atoll-held-" in head, head
    assert "identity" not in head  # untouched: nobody read it


def test_a_redirect_to_another_host(place, held):
    place.here.pages[API, "/away"] = lambda one: (
        f"HTTP/1.1 302 Found\r\nLocation: https://other.example/?{one.field('Authorization')}\r\n"
        "Content-Length: 0\r\n\r\n").encode()
    place.here.requests.clear()
    held.put("/workspace/ca.pem", place.here.authority.path.read_bytes())
    held.run("curl -sS -m 30 -L --location-trusted -H \"Authorization: Bearer $API_KEY\" --cacert "
             f"/etc/ssl/atoll/bundle.pem https://{API}/away")
    held.run("curl -sS -k -m 30 -L --location-trusted -H \"Authorization: Bearer $API_KEY\" "
             f"https://{API}/away")
    assert place.heads(API) and all(place.values["API_KEY"] in head for head in place.heads(API))
    away = place.heads("other.example")
    assert away and all(place.values["API_KEY"] not in head for head in away), away


def test_paths_and_bodies_stay_as_they_are(place, held):
    place.here.requests.clear()
    held.sh(f"curl -sS -m 30 -d \"$API_KEY\" https://{API}/x/$API_KEY")
    one, = [one for one in place.here.requests if one.host == API]
    assert place.values["API_KEY"] not in one.head.decode() + one.body.decode()
    assert "atoll-held-" in one.target and one.body.startswith(b"atoll-held-")


# ---- live ----


def test_rules_count_at_once_and_are_taken_back_at_once(place):
    server, box = place.server, place.box()
    ask = f"curl -sS -m 30 https://{API}/who"
    output, errors, status = box.run(ask)
    assert status != 0 and "certificate" in errors  # the world's own, which nobody inside knows
    changed = server.request("PATCH", f"{box.base}/egress", {"inject": RULES[:1]})
    assert changed.status == 200 and changed.json()["policy"]["inject"] == RULES[:1], changed
    assert "known" in box.sh(ask)
    shown = server.get(f"{box.base}/egress").json()
    assert [(c["list"], c["rule"], c["level"], c["missing"]) for c in shown["credentials"]] == [
        ("inject", RULES[0], "sandbox", False)]
    assert ("intercept", API) in [(r["list"], r["rule"]) for r in shown["rules"]]
    # A new value counts for the next request; the old one is nobody's.
    new = "sk-" + random_.token_hex(16)
    old, place.values["API_KEY"] = place.values["API_KEY"], new
    assert server.request("PUT", "/api/v1/secrets/API_KEY", {"value": new, "hosts": [API]}).status == 200
    assert "known" in box.sh(ask) and old not in place.heads(API)[-1]
    assert server.request("PATCH", f"{box.base}/egress", {"inject": [], "intercept": [API]}).status == 200
    assert "stranger" in box.sh(ask)
    audit = server.get("/api/v1/audit?limit=1000").body.decode()
    assert "egress.sandbox.change" in audit and "secret.put" in audit
    assert new not in audit and old not in audit


def test_layers(place):
    """A rule of the tenant is for all its sandboxes; one that is locked leaves nothing to those inside."""
    server, path = place.server, "/api/v1/egress/policies/tenant"
    box = place.box()
    try:
        assert server.request("PATCH", path, {"inject": RULES[:1]}).status == 200
        assert "known" in box.sh(f"curl -sS -m 30 https://{API}/who")
        reply = server.request("PATCH", path, {"inject": [], "locked": True, "allow": HOSTS})
        assert reply.status == 200, reply
        assert server.request("PATCH", f"{box.base}/egress", {"inject": RULES[:1]}).status == 200
        assert box.run(f"curl -sS -m 30 https://{API}/who")[2] != 0
        assert not server.get(f"{box.base}/egress").json()["credentials"]
    finally:
        assert server.request("PUT", path, {}).status == 200


def test_a_secret_that_is_gone(place):
    server = place.server
    value = "sk-" + random_.token_hex(16)
    assert server.request("PUT", "/api/v1/secrets/BRIEF", {"value": value, "hosts": [API]}).status == 201
    box = place.box(inject=[f"{API} => X-Brief: {{secret:BRIEF}}"], secrets=["BRIEF"], intercept=[API])
    place.here.requests.clear()
    box.sh(f"curl -sS -m 30 https://{API}/a")
    assert server.delete("/api/v1/secrets/BRIEF").status == 204
    box.sh(f"curl -sS -m 30 https://{API}/b; test -z \"$BRIEF\"")
    assert [value in head for head in place.heads(API)] == [True, False]
    assert [c["missing"] for c in server.get(f"{box.base}/egress").json()["credentials"]] == [True, True]
    # Changes of other things go through.
    assert server.request("PATCH", f"{box.base}/egress", {"deny": ["x.example"]}).status == 200


@pytest.mark.timeout(120)
def test_whoever_is_killed_it_goes_on(place, held):
    """Egress and api, by kill -9: all of it is said again."""
    server, ask = place.server, CLIENTS["curl"][2]

    def known():
        output, errors, status = held.run(ask, 60)
        return status == 0 and "known" in output

    for kill in ("egress", "api", "both"):
        if kill != "api":
            pid, = egress_pids(server)
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: [p for p in egress_pids(server) if p != pid], 20, "another process")
        if kill != "egress":
            server.kill9_api()
            server.wait_ready()
        wait_until(known, 30, f"after {kill}", pause=0.2)


def egress_pids(server):
    return [pid for pid in harness.children(server.warden_pid) if harness.cmdline(pid).split()[1:2] == ["egress"]]


def test_it_stops_and_starts_and_is_copied(place):
    """What it trusts is put again into one that starts anew; a copy trusts its own authority."""
    server = place.server
    box = egress_box.Box(server, {"allow": HOSTS, "inject": RULES[:1]}, storage="disk")
    ask = f"curl -sS -m 30 https://{API}/who"
    assert "known" in box.sh(ask)
    first = box.sh("cat /etc/ssl/atoll/ca.pem")
    for verb in ("stop", "start"):
        assert server.post(f"{box.base}/{verb}").status == 200
    assert "known" in box.sh(ask)
    reply = server.post(f"{box.base}/fork", {})
    assert reply.status == 201, reply
    copy = egress_box.Box.__new__(egress_box.Box)
    copy.server, copy.id = server, reply.json()["id"]
    copy.base = f"{egress_box.BOXES}/{copy.id}"
    assert "known" in copy.sh(ask)
    assert copy.sh("cat /etc/ssl/atoll/ca.pem") != first
    bundle = copy.get("/etc/ssl/certs/ca-certificates.crt").decode()
    assert bundle.count("# atoll:") == 2 and first not in bundle


# ---- nowhere ----


LONG = """
import os, sys, time, urllib.request as u
asked = u.Request("https://api.shop.example/who", headers={"Authorization": "Bearer " + os.environ["API_KEY"]})
got = u.urlopen(asked, timeout=30).read()
open("/workspace/answer", "wb").write(got)
print(got.decode(), flush=True)
time.sleep(600)
"""


def memory(pid):
    """All that can be read of a process."""
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as mem:
        for line in maps:
            span, mode = line.split()[:2]
            begin, end = (int(x, 16) for x in span.split("-"))
            if "r" not in mode or "[v" in line or end - begin > 1 << 30:
                continue
            try:
                mem.seek(begin)
                yield mem.read(end - begin)
            except (OSError, OverflowError, ValueError):
                pass


def holds(pid, needles):
    return any(needle in data for data in memory(pid) for needle in needles)


def inside(server, box):
    """Processes of a sandbox: its init, and those that its commands began."""
    found = []
    for pid in harness.descendants(server.warden_pid):
        try:
            environ = pathlib.Path(f"/proc/{pid}/environ").read_bytes()
            parent = int(harness.proc_status(pid)["PPid"])
        except (OSError, KeyError):
            continue
        if f"ATOLL_SANDBOX={box.id}".encode() in environ:
            found += [pid, parent]
    return sorted(set(found))


@pytest.mark.timeout(150)
def test_a_secret_is_nowhere(place, held):
    server = place.server
    # The process that took it may have it in memory that it gave back; the next one never saw it.
    server.kill9_api()
    server.wait_ready()
    held.put("/workspace/long.py", LONG.encode())
    exec_id = server.post(f"{held.base}/execs", {"command": "exec python3 /workspace/long.py"}).json()["id"]
    wait_until(lambda: "known" in held.sh("cat /workspace/answer 2>/dev/null || true"), 20, "its answer", pause=0.2)
    for name in CLIENTS:
        run(held, CLIENTS[name][2])
    values = list(place.values.values())
    needles = [form.encode() for value in values for form in (
        value, basic("x-access-token", value)[6:], basic("any", value)[6:])]

    pid, = egress_pids(server)
    assert holds(pid, needles), "whoever injects it has it: or this test sees nothing"
    pids = inside(server, held)
    assert len(pids) >= 2
    for pid in [*pids, server.api_pid(), server.warden_pid]:
        assert not holds(pid, needles), pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
        for part in ("environ", "cmdline"):
            data = pathlib.Path(f"/proc/{pid}/{part}").read_bytes()
            assert not any(needle in data for needle in needles)

    pattern = "|".join(needle.decode().replace("+", "[+]") for needle in needles)
    held.put("/workspace/pattern", pattern.encode())
    found = held.sh("grep -rlaE --devices=skip -f /workspace/pattern / --exclude=pattern --exclude-dir=proc"
                    " --exclude-dir=sys --exclude-dir=usr 2>/dev/null | head; true")
    assert found == "", found
    held.sh("rm /workspace/pattern")
    assert "known" in held.sh("grep -l known /workspace/answer && cat /workspace/answer")

    for path in sorted(server.state.rglob("*")):
        if path.is_file() and path.stat().st_size < 1 << 28:
            data = path.read_bytes()
            assert not any(needle in data for needle in needles), path
    for path in ("/api/v1/events?limit=1000", "/api/v1/audit?limit=1000", "/api/v1/secrets", f"{held.base}/egress",
                 f"{held.base}/egress/records?limit=1000", f"{held.base}/execs/{exec_id}", held.base, "/metrics"):
        reply = server.get(path)
        assert reply.status == 200, (path, reply)
    for body in place.replies:
        assert not any(needle in body for needle in needles)
    assert not any(needle in server.log().encode() for needle in needles)
    assert "atoll-held-" not in server.log()


# ---- bad wishes ----


BAD = [
    ({"inject": [f"{API} -> X: {{secret:API_KEY}}"]}, "inject[0]"),
    ({"inject": [RULES[0], f"{API} => Host: {{secret:API_KEY}}"]}, "inject[1]"),
    ({"inject": [f"{API} => X-Key: plain"]}, "inject[0]"),
    ({"inject": [f"{API} => X-Key: {{secret:API_KEY}}{{secret:GIT_TOKEN}}"]}, "inject[0]"),
    ({"inject": [f"{API} => : {{secret:API_KEY}}"]}, "inject[0]"),
    ({"inject": ["10.0.0.1 => X-Key: {secret:API_KEY}"]}, "inject[0]"),
    ({"inject": [f"{API} => X-Key: {{secret:NONE}}"]}, "inject[0]"),
    ({"inject": [f"{API} => X-Key: {{secret:API_KEY}}\r\nX-More: 1"]}, "inject[0]"),
    ({"secrets": ["NONE"]}, "secrets[0]"),
    ({"secrets": ["1A=API_KEY"]}, "secrets[0]"),
    ({"secrets": ["A B=API_KEY"]}, "secrets[0]"),
    ({"secrets": ["A="]}, "secrets[0]"),
    ({"inject": [RULES[0]] * 65}, "inject"),
    ({"secrets": ["API_KEY"] * 33}, "secrets"),
]


@pytest.mark.parametrize("wish,field", BAD)
def test_a_wish_that_is_none(place, wish, field):
    reply = place.server.post(egress_box.BOXES, {"ttl_ms": 60000, "egress": wish})
    assert reply.status == 400, reply
    assert reply.json()["error"]["field"].startswith(f"egress.{field}"), reply


def test_who_may(place):
    server = place.server
    agent = server.new_token("agent")["token"]
    reply = server.post(egress_box.BOXES, {"ttl_ms": 60000, "egress": {"secrets": ["API_KEY"]}}, token=agent)
    assert reply.status == 403, reply
    for wish in ({"inject": RULES[:1]}, {"secrets": ["API_KEY"]}):
        reply = server.request("PATCH", "/api/v1/egress/policies/node", wish)
        assert reply.status == 400 and reply.json()["error"]["field"] == [*wish][0], reply


def test_the_command_line(place):
    server = place.server
    made = server.cli("create", "--name", "cred", "--allow", API, "--inject", RULES[0], "--secret", "TOKEN=API_KEY",
                      check=True)
    assert made.returncode == 0
    got = server.cli("exec", "cred", "--", "sh", "-c", f"echo $TOKEN; curl -sS -m 30 https://{API}/who", check=True)
    assert got.stdout.startswith("atoll-held-") and "known" in got.stdout, got
    shown = server.cli("egress", "show", "cred", check=True).stdout
    assert RULES[0] in shown and "TOKEN=API_KEY" in shown, shown
    assert server.cli("egress", "set", "cred", "--inject", "", "--secret", "", check=True).returncode == 0
    assert RULES[0] not in server.cli("egress", "show", "cred", check=True).stdout
