"""The TypeScript client of the hub against the real server: tests/sdk/hub.ts, each check a test; the examples of its
page, and the two agents that review each other."""
import json
import os
import re
import shutil
import subprocess

import pytest

import flaky
import harness
import sdkts
from hub import open_server, unique
from sdkts import SDK

SOURCE = harness.ROOT / "tests" / "sdk" / "hub.ts"
CHECKS = re.findall(r'^check\("([^"]+)"', SOURCE.read_text(), re.M)
EXAMPLE = SDK / "examples" / "review_each_other.ts"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    where = tmp_path_factory.mktemp("sdk")
    sdkts.install(where)
    examples = re.findall(r"^```ts\n(.*?)^```", (SDK / "SPOKES.md").read_text(), re.M | re.S)
    assert len(examples) >= 4
    (where / "page.ts").write_text("\n".join(examples) + 'console.log("all of them");\n')
    shutil.copy(SOURCE, where), shutil.copy(EXAMPLE, where)
    sdkts.tsc(where, "--strict", "--target", "ES2022", "--module", "NodeNext", "--skipLibCheck", "--types", "node",
              "--lib", "ES2022,DOM,DOM.Iterable,DOM.AsyncIterable", "page.ts", "hub.ts", EXAMPLE.name)
    return where


@pytest.fixture(scope="module")
def servers():
    quick = {"ATOLL_HUB_MESSAGE_RATE": "100000", "ATOLL_HUB_HEARTBEAT_RATE": "100000"}
    both = [open_server(env=quick).start(), harness.Server().start()]
    yield both
    for server in both:
        server.stop()


@pytest.fixture(scope="module")
def results(project, servers):
    server, closed = servers
    signer = closed.new_token("agent", name=unique("signer"), signing=True)
    plain = closed.new_token("agent", name=unique("plain"))
    proxy = flaky.Flaky(server.port)
    env = {**{k: v for k, v in os.environ.items() if not k.startswith("ATOLL_")}, "HUB": server.url,
           "FLAKY": proxy.address, "CLOSED": closed.url, "SIGNER_NAME": signer["name"], "SIGNER_ID": signer["id"],
           "SIGNER_TOKEN": signer["token"], "PLAIN_NAME": plain["name"], "PLAIN_TOKEN": plain["token"]}
    found = {}
    with subprocess.Popen(["node", "--unhandled-rejections=strict", project / "hub.js"], env=env, text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as node:
        for line in node.stdout:
            if line.startswith("@cut"):
                proxy.cut(int(line.split()[1]))
            elif line.startswith("@kill"):
                server.kill9_api(), server.wait_ready()
            else:
                said = json.loads(line)
                found[said["name"]] = said
                continue
            node.stdin.write("done\n")
            node.stdin.flush()
        errors = node.stderr.read()
    proxy.close()
    assert node.returncode == 0, errors
    return found


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", CHECKS)
def test_checks(results, name):
    assert results[name]["ok"], results[name]["why"]


@pytest.mark.timeout(120)
def test_the_examples_of_the_page(start_server, project):
    server = start_server(args=["--auth", "open"])
    done = subprocess.run(["node", "--unhandled-rejections=strict", project / "page.js"], capture_output=True,
                          text=True, timeout=100, env={**os.environ, "HUB_URL": server.url})
    assert done.returncode == 0 and done.stdout.endswith("all of them\n"), done.stdout + done.stderr


@pytest.mark.timeout(120)
def test_two_agents_review_each_other(start_server, project):
    server = start_server()
    env = {**os.environ, **{name.upper() + "_TOKEN": server.new_token("agent", name=name)["token"]
                            for name in ("ada", "eve")}}
    done = subprocess.run(["node", project / EXAMPLE.with_suffix(".js").name, server.url, "5"], capture_output=True,
                          text=True, timeout=100, env=env)
    assert done.returncode == 0 and done.stderr == "", done.stdout + done.stderr
    assert "done: 5 of 5" in done.stdout
    assert done.stdout.count("approved:") == 5 == done.stdout.count("back to")


def test_it_needs_nothing_of_node_in_a_browser(project):
    """Only where the platform has no Web Crypto is a module of Node asked for it."""
    todo, seen = ["spokes.js"], set()
    dist = project / "node_modules" / "@atoll" / "sdk" / "dist"
    while todo:
        name = todo.pop()
        seen.add(name)
        text = (dist / name).read_text()
        for target in re.findall(r'(?:from|import) "([^"]+)"', text):
            assert target.startswith("./"), f"{name} imports {target}"
            todo += [target[2:]] if target[2:] not in seen else []
        assert text.count('import("') == (1 if name == "spokes.js" else 0)
