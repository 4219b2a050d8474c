"""Archives for tests of images: root trees, OCI layouts and `docker save` archives, as tar bytes."""
import gzip
import hashlib
import io
import json
import lzma
import os
import subprocess
import tarfile

import harness


def entry(name, content=None, **attributes):
    """(TarInfo, bytes): a file with content; otherwise what `type` says."""
    info = tarfile.TarInfo(name)
    info.mode = 0o755
    data = content.encode() if isinstance(content, str) else content
    if data is not None:
        info.size, info.mode = len(data), 0o644
    for key, value in attributes.items():
        setattr(info, key, value)
    return info, data


def folder(name, **attributes):
    return entry(name, type=tarfile.DIRTYPE, **attributes)


def symlink(name, to):
    return entry(name, type=tarfile.SYMTYPE, linkname=to)


def hardlink(name, to):
    return entry(name, type=tarfile.LNKTYPE, linkname=to)


def tar(*entries, form=tarfile.PAX_FORMAT):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form, encoding="utf-8", errors="surrogateescape") as archive:
        for info, data in entries:
            archive.addfile(info, io.BytesIO(data) if data is not None else None)
    return out.getvalue()


def zstd(data):
    return subprocess.run(["zstd", "-q", "-c"], input=data, stdout=subprocess.PIPE, check=True).stdout


PACK = {"plain": bytes, "gzip": gzip.compress, "xz": lzma.compress, "zstd": zstd}


def sha256(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def config_of(layers, arch="amd64", **config):
    """The config file of an image whose layers are these tars."""
    return json.dumps({"architecture": arch, "os": "linux", "config": config,
                       "rootfs": {"type": "layers", "diff_ids": [sha256(layer) for layer in layers]}}).encode()


def oci(layers, pack="gzip", arch="amd64", name=None, **config):
    """An OCI layout as a tar; the manifest comes last, as some tools write it."""
    blobs = {}

    def put(data):
        blobs[sha256(data)] = data
        return {"digest": sha256(data), "size": len(data)}

    packed = [put(PACK[pack](layer)) for layer in layers]
    manifest = put(json.dumps({"schemaVersion": 2, "config": put(config_of(layers, arch, **config)),
                               "layers": packed}).encode())
    if name:
        manifest["annotations"] = {"org.opencontainers.image.ref.name": name}
    manifest["platform"] = {"architecture": arch, "os": "linux"}
    files = [entry(f"blobs/sha256/{digest[7:]}", data) for digest, data in blobs.items()]
    return tar(*files, entry("oci-layout", '{"imageLayoutVersion": "1.0.0"}'),
               entry("index.json", json.dumps({"schemaVersion": 2, "manifests": [manifest]})))


def docker(layers, arch="amd64", tag="test:latest", **config):
    """What `docker save` wrote before version 25."""
    settings = config_of(layers, arch, **config)
    name = sha256(settings)[7:] + ".json"
    names = [f"{i:064x}/layer.tar" for i in range(len(layers))]
    return tar(*[entry(n, layer) for n, layer in zip(names, layers)], entry(name, settings),
               entry("manifest.json", json.dumps([{"Config": name, "RepoTags": [tag], "Layers": names}])))


class Unpacker:
    """The program that unpacks, on plain directories; without some of its guards, perhaps (base/guard.h)."""

    def __init__(self, base, without=""):
        self.base, self.count = base, 0
        self.program, self.env = harness.BIN, dict(os.environ)
        if without:
            self.program, self.env["ATOLL_WITHOUT"] = harness.BUILD / "unguarded" / "atoll", without

    def run(self, *args, **more):
        done = subprocess.run([self.program, "helper", *args], env=self.env, capture_output=True, **more)
        answer = json.loads(done.stdout)
        assert (done.returncode != 0) == ("error" in answer) and done.stderr == b"", done
        return answer

    def inspect(self, data):
        """(directory of the upload, answer)"""
        self.count += 1
        place = self.base / f"in{self.count}"
        place.mkdir()
        return place, self.run("inspect", place, "amd64", input=data)

    def layer(self, place, *numbers):
        """(tree, answer) of one, or of several in one directory"""
        self.count += 1
        out = self.base / f"out{self.count}"
        out.mkdir()
        return out, self.run("unpack", place, out, *map(str, numbers))

    def tree(self, data):
        place, answer = self.inspect(data)
        if "error" in answer:
            return None, answer
        return self.layer(place, 0)

    def refused(self, data):
        """The error of a tar, from whichever of the two steps it comes."""
        error = self.tree(data)[1].get("error")
        assert error, "was taken"
        return error["code"], error["message"]
