"""The TypeScript SDK against the real server. The checks are written in its own language (tests/sdk/checks.ts),
compiled and type-checked against the package as it would be published; each is a test here. So are the README's
examples."""
import base64
import json
import os
import re
import shutil
import socket
import subprocess

import pytest

import flaky
import harness
import images
import sdkts
from sdkts import SDK

SOURCE = harness.ROOT / "tests" / "sdk" / "checks.ts"
CHECKS = re.findall(r'^check\("([^"]+)"', SOURCE.read_text(), re.M)
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A directory that has the package installed, and compiles programs that use it."""
    where = tmp_path_factory.mktemp("sdk")
    sdkts.install(where)
    examples = re.findall(r"^```ts\n(.*?)^```", (SDK / "README.md").read_text(), re.M | re.S)
    assert len(examples) >= 6
    (where / "examples.ts").write_text("\n".join(examples) + 'console.log("all of them");\n')
    shutil.copy(SOURCE, where)
    sdkts.tsc(where, "--strict", "--target", "ES2022", "--module", "NodeNext", "--skipLibCheck", "--types", "node",
              "--lib", "ES2022,DOM,DOM.Iterable,DOM.AsyncIterable", "examples.ts", "checks.ts")
    return where


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    """Servers of other kinds: with TLS, and with a low rate limit."""
    where = tmp_path_factory.mktemp("tls")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                    "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
                    "-keyout", where / "key.pem", "-out", where / "cert.pem"], check=True, stderr=subprocess.DEVNULL)
    tls = harness.Server(tls=True, env={"ATOLL_TLS_CERT": str(where / "cert.pem"),
                                        "ATOLL_TLS_KEY": str(where / "key.pem")}).start()
    rated = harness.Server(env={"ATOLL_RATE_PER_SECOND": "5", "ATOLL_RATE_BURST": "10"}).start()
    yield {"TLS_ADDRESS": tls.url, "TLS_TOKEN": tls.token, "TLS_CA": str(where / "cert.pem"),
           "RATED_ADDRESS": rated.url, "RATED_TOKEN": rated.token}
    tls.stop(), rated.stop()


def hostile():
    """Archives that want out, and which of their members are left out; None: refused as a whole."""
    cases = {
        "up": ([images.entry("../evil", "x")], None),
        "up inside": ([images.entry("a/../../evil", "x")], None),
        "absolute": ([images.entry("/tmp/atoll-evil", "x")], None),
        "through a link that is there": ([images.entry("there/evil", "x")], None),
        "through its own link": ([images.symlink("d", "../outside"), images.entry("d/evil", "x")], ["d"]),
        "links": ([images.entry("s/keep", "x"), images.symlink("s/top", ".."), images.symlink("good", "s/keep"),
                   images.symlink("abs", "/etc/passwd"), images.symlink("trick", "s/top/../etc"),
                   images.symlink("s/deep", "../../x"), images.hardlink("hard", "/etc/passwd"),
                   images.entry("dev", type=images.tarfile.CHRTYPE)], ["abs", "dev", "hard", "s/deep", "trick"]),
    }
    return {name: {"tar": base64.b64encode(images.tar(*entries)).decode(), "skipped": skipped}
            for name, (entries, skipped) in cases.items()}


def answer(server, proxy, wish):
    word, *number = wish.split()
    if word == "kill":
        server.kill9_api()
    else:
        proxy.cut(int(number[0]))


@pytest.fixture(scope="module")
def results(server, project, others, tmp_path_factory):
    """One run of all checks: {name: what was said of it}."""
    where = tmp_path_factory.mktemp("files")
    (where / "hostile").write_text(json.dumps(hostile()))
    (where / "image").write_bytes(images.tar(images.folder("etc"), images.entry("etc/os-release", "ID=tiny\n")))
    proxy, silent = flaky.Flaky(server.port), socket.create_server(("127.0.0.1", 0))
    env = {**{k: v for k, v in os.environ.items() if not k.startswith("ATOLL_")}, **others,
           "STATE": str(server.state), "ADDRESS": server.url, "TOKEN": server.token, "FLAKY": proxy.address,
           "SILENT": "http://127.0.0.1:%d" % silent.getsockname()[1], "HOSTILE": str(where / "hostile"),
           "IMAGE": str(where / "image")}
    found = {}
    with subprocess.Popen(["node", "--unhandled-rejections=strict", project / "checks.js"], env=env, text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as node:
        for line in node.stdout:
            if line.startswith("@"):
                answer(server, proxy, line[1:])
                node.stdin.write("done\n")
                node.stdin.flush()
            else:
                said = json.loads(line)
                found[said["name"]] = said
        errors = node.stderr.read()
    proxy.close(), silent.close()
    assert node.returncode == 0, errors
    return found


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", CHECKS)
def test_checks(results, name):
    assert results[name]["ok"], results[name]["why"]


@pytest.mark.timeout(120)
def test_the_examples_of_the_readme(server, project):
    done = subprocess.run(["node", "--unhandled-rejections=strict", project / "examples.js"], capture_output=True,
                          text=True, timeout=100, env={**os.environ, "ATOLL_STATE": str(server.state)})
    assert done.returncode == 0 and done.stdout.endswith("all of them\n"), done.stderr
    assert server.get("/api/v1/sandboxes").json()["items"] == []


def test_the_main_entry_needs_nothing_of_node(project):
    """What a browser loads imports no module but its own files."""
    todo, seen = ["index.js"], set()
    dist = project / "node_modules" / "@atoll" / "sdk" / "dist"
    while todo:
        name = todo.pop()
        seen.add(name)
        for target in re.findall(r'(?:from|import) "([^"]+)"', (dist / name).read_text()):
            assert target.startswith("./"), f"{name} imports {target}"
            todo += [target[2:]] if target[2:] not in seen else []
    assert "client.js" in seen and "node.js" not in seen and "tree.js" not in seen


def test_the_package_holds_what_it_needs(project):
    package = json.loads((SDK / "package.json").read_text())
    assert "dependencies" not in package and package["engines"]["node"] == ">=18"
    version = re.search(r'VERSION = "([^"]+)"', (SDK / "src" / "transport.ts").read_text()).group(1)
    made = re.search(r'API_VERSION = "([^"]+)"', (SDK / "src" / "api.ts").read_text()).group(1)
    assert package["version"] == version == made
    for entry in package["exports"].values():
        for path in entry.values():
            assert (project / "node_modules" / "@atoll" / "sdk" / path).exists()
