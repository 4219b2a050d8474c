"""Programs as people use them, on the way out of a sandbox in the closed world: with no settings of a proxy at
all, and by HTTP_PROXY. Only what is allowed is reached, and a denial says so in the program's own words."""
import hashlib
import io
import json
import os
import pathlib
import shutil
import subprocess
import tarfile
import zipfile

import egress_box
import harness
import pytest
import world

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
ADDRESS = "45.1.0.1"
HOSTS = ["www.shop.example", "packages.python.example", "packages.node.example", "code.git.example", "deb.apt.example"]


def wheel(name, version):
    """A wheel of one module."""
    data, info = io.BytesIO(), f"{name}-{version}.dist-info"
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr(f"{name}.py", f"VERSION = {version!r}\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL",
                         "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return f"{name}-{version}-py3-none-any.whl", data.getvalue()


def npm_package(name, version):
    data, text = io.BytesIO(), json.dumps({"name": name, "version": version, "main": "index.js"}).encode()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for path, content in (("package/package.json", text), ("package/index.js", b"module.exports = 42;\n")):
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return data.getvalue()


def python_pages(pages):
    name, data = wheel("coral", "1.0")
    host, digest = "packages.python.example", hashlib.sha256(data).hexdigest()
    index = f'<!DOCTYPE html><html><body><a href="/files/{name}#sha256={digest}">{name}</a></body></html>'
    pages[host, "/simple/coral/"] = ("text/html", index.encode())
    pages[host, f"/files/{name}"] = ("application/octet-stream", data)


def node_pages(pages):
    data, host = npm_package("reef", "1.0.0"), "packages.node.example"
    where = {"tarball": f"https://{host}/reef/-/reef-1.0.0.tgz", "shasum": hashlib.sha1(data).hexdigest()}
    about = {"name": "reef", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {
        "name": "reef", "version": "1.0.0", "dist": where}}}
    pages[host, "/reef"] = ("application/json", json.dumps(about).encode())
    pages[host, "/reef/-/reef-1.0.0.tgz"] = ("application/octet-stream", data)


def git_pages(pages, directory):
    """A repository by the simple protocol: files alone."""
    work, bare = pathlib.Path(directory) / "work", pathlib.Path(directory) / "shells.git"
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b.example",
           "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b.example"}

    def git(*args, cwd):
        subprocess.run(["git", *args], cwd=cwd, env=env, check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)

    work.mkdir()
    git("init", "-q", "-b", "main", cwd=work)
    (work / "shell.txt").write_text("a shell\n")
    git("add", ".", cwd=work)
    git("commit", "-q", "-m", "one", cwd=work)
    git("clone", "-q", "--bare", str(work), str(bare), cwd=directory)
    git("update-server-info", cwd=bare)
    for path in bare.rglob("*"):
        if path.is_file():
            pages["code.git.example", f"/shells.git/{path.relative_to(bare)}"] = ("text/plain", path.read_bytes())


def apt_pages(pages, directory):
    """A package and a list of it, by plain HTTP as apt has it."""
    tree, host = pathlib.Path(directory) / "kelp", "deb.apt.example"
    control = "Package: kelp\nVersion: 1.0\nArchitecture: all\nMaintainer: a <a@b.example>\nDescription: a plant\n"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN" / "control").write_text(control)
    subprocess.run(["dpkg-deb", "-b", tree, f"{directory}/kelp.deb"], check=True, stdout=subprocess.DEVNULL)
    data = pathlib.Path(f"{directory}/kelp.deb").read_bytes()
    about = f"{control}Filename: ./kelp.deb\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n\n"
    pages[host, "/./Packages"] = ("text/plain", about.encode())
    pages[host, "/./kelp.deb"] = pages[host, "/kelp.deb"] = ("application/octet-stream", data)


def compiled(directory):
    """A client in Go; by gcc, whose compiler and libraries are half the size of the usual ones."""
    source, program = pathlib.Path(directory) / "get.go", pathlib.Path(directory) / "goget"
    source.write_text(GO)
    subprocess.run(["gccgo-12", "-o", program, source], check=True)
    return program.read_bytes()


@pytest.fixture(scope="module")
def here():
    with world.World() as made:
        made.zone.update({host: [ADDRESS] for host in HOSTS} | {"evil.example": ["45.6.6.6"]})
        made.strict.update(HOSTS[1:])
        python_pages(made.pages)
        node_pages(made.pages)
        git_pages(made.pages, made.directory)
        apt_pages(made.pages, made.directory)
        yield made


@pytest.fixture(scope="module")
def box(here):
    server = egress_box.start_server()
    made = egress_box.Box(server, {"allow": HOSTS})
    made.put("/workspace/ca.pem", here.authority.path.read_bytes())
    made.put("/workspace/Get.java", JAVA.encode())
    if shutil.which("gccgo-12"):
        made.put("/workspace/goget", compiled(here.directory))
        assert made.run("chmod +x /workspace/goget", 20)[2] == 0
    yield made
    assert server.delete(made.base).status == 200
    server.stop()


JAVA = """
import java.net.*;
public class Get {
    public static void main(String[] a) throws Exception {
        HttpURLConnection c = (HttpURLConnection) new URL(a[0]).openConnection();
        System.out.println(c.getResponseCode());
    }
}
"""
GO = """
package main

import (
    "fmt"
    "io"
    "net/http"
    "os"
)

func main() {
    reply, err := http.Get(os.Args[1])
    if err != nil {
        fmt.Println(err)
        os.Exit(1)
    }
    body, _ := io.ReadAll(reply.Body)
    fmt.Println(reply.StatusCode, string(body))
}
"""
CA = "SSL_CERT_FILE=/workspace/ca.pem CURL_CA_BUNDLE=/workspace/ca.pem NODE_EXTRA_CA_CERTS=/workspace/ca.pem " \
     "GIT_SSL_CAINFO=/workspace/ca.pem PIP_CERT=/workspace/ca.pem npm_config_cafile=/workspace/ca.pem " \
     "HOME=/workspace PIP_DISABLE_PIP_VERSION_CHECK=1 npm_config_update_notifier=false npm_config_fund=false " \
     "npm_config_audit=false npm_config_cache=/workspace/npm "
PLAIN = "env -u HTTP_PROXY -u HTTPS_PROXY -u http_proxy -u https_proxy -u ALL_PROXY -u all_proxy " + CA
PROXY = "env HTTP_PROXY=http://198.18.0.1:3128 HTTPS_PROXY=http://198.18.0.1:3128 http_proxy=http://198.18.0.1:3128 " \
        "https_proxy=http://198.18.0.1:3128 NODE_USE_ENV_PROXY=1 " + CA
NODE = "fetch(process.argv[1]).then(r => r.json()).then(j => console.log(j.host)).catch(e => {console.log('failed', " \
       "e.cause && e.cause.code); process.exit(1)})"
# name: (program that must be there, command, what it prints)
CLIENTS = {
    "curl http": ("curl", "curl -sS -m 20 http://www.shop.example/x", '"host": "www.shop.example"'),
    "curl https": ("curl", "curl -sS -m 20 https://www.shop.example/x", '"tls": "www.shop.example"'),
    "python urllib": ("python3", "python3 -c 'import urllib.request as u; "
                      "print(u.urlopen(\"https://www.shop.example/x\", timeout=20).read().decode())'",
                      '"tls": "www.shop.example"'),
    "node fetch": ("node", f'node -e "{NODE}" https://www.shop.example/x', "www.shop.example"),
    "git": ("git", "rm -rf got && git clone -q https://code.git.example/shells.git got && cat got/shell.txt",
            "a shell"),
    "pip": ("pip3", "rm -rf lib && python3 -m pip install -q --no-deps --target lib "
            "--index-url https://packages.python.example/simple/ coral && cat lib/coral.py", "VERSION = '1.0'"),
    "npm": ("npm", "rm -rf js && mkdir js && cd js && npm install --silent --prefix . "
            "--registry https://packages.node.example/ reef && cat node_modules/reef/index.js", "42"),
    "apt": ("apt-get", "rm -rf apt && mkdir -p apt/etc apt/lists/partial apt/cache/archives/partial "
            "&& touch apt/status && echo deb [trusted=yes] http://deb.apt.example/ ./ > apt/etc/sources.list "
            "&& export APT_CONFIG=apt/conf && echo 'Dir::Etc \"/workspace/apt/etc\"; Dir::State \"/workspace/apt\"; "
            "Dir::State::status \"/workspace/apt/status\"; Dir::Cache \"/workspace/apt/cache\";' > apt/conf && "
            "apt-get -qq update && apt-get -qq download kelp && dpkg-deb -f kelp*.deb Package", "kelp"),
    "java": ("java", "java Get.java http://www.shop.example/x", "200"),
    "go http": ("gccgo-12", "./goget http://www.shop.example/x", "200 "),
    "go https": ("gccgo-12", "./goget https://www.shop.example/x", '"tls": "www.shop.example"'),
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", CLIENTS)
@pytest.mark.parametrize("settings", [PLAIN, PROXY], ids=["plain", "proxy"])
def test_client(box, name, settings):
    program, command, want = CLIENTS[name]
    if not shutil.which(program):
        pytest.skip(f"{program} is not installed")
    if name == "java" and settings is PROXY:
        command = command.replace("java ", "java -Dhttp.proxyHost=198.18.0.1 -Dhttp.proxyPort=3128 ", 1)
    output, errors, status = box.run(f"cd /workspace && {settings} sh -c {egress_box.quote(command)}", 100)
    assert status == 0 and want in output, (output, errors)


DENIED = {
    "curl http": ("curl -sS -m 20 http://evil.example/", "egress_denied"),
    "curl https": ("curl -sS -m 20 https://evil.example/ || echo failed", "failed"),
    "python": ("python3 -c 'import urllib.request as u; u.urlopen(\"http://evil.example/\")' 2>&1 || true", "403"),
    "git": ("git clone -q https://evil.example/x.git other 2>&1 || echo failed", "failed"),
    "go": ("./goget http://evil.example/", "egress_denied"),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", DENIED)
@pytest.mark.parametrize("settings", [PLAIN, PROXY], ids=["plain", "proxy"])
def test_what_is_not_allowed(here, box, name, settings):
    command, want = DENIED[name]
    if name == "go" and not shutil.which("gccgo-12"):
        pytest.skip("gccgo-12 is not installed")
    output, errors, _ = box.run(f"cd /workspace && {settings} sh -c {egress_box.quote(command)}", 50)
    assert want in output, (output, errors)
    here.settle()
    assert not [n for n, _ in here.lookups if n == "evil.example"] and ("tcp", "45.6.6.6", 443) not in here.packets
