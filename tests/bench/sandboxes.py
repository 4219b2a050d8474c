"""Sandboxes beside bwrap, crun, runc and runsc: the table of DESIGN section 10; rest.py has what needs a server.

The loop itself is tests/bench/box.c: every round runs each of them once. The peers' bundles are made here,
with limits and a filter as Docker sets them. crun refuses machines that have cgroups of both kinds, so
everything runs in a mount namespace without the second.
"""
import json
import pathlib
import re
import shutil
import statistics
import subprocess

import harness

BWRAP = ("bwrap --unshare-all --ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib "
         "--symlink usr/lib64 /lib64 --proc /proc --dev /dev --tmpfs /tmp /bin/true")
IDS = 2_000_000_000
# Without a KVM of its own gVisor traces, and its cgroups are not for machines that have both kinds.
RUNSC = "--platform=ptrace --network=none --ignore-cgroups"


def allowed_calls():
    """The names that the sandboxes' own filter allows: as many as Docker's."""
    text = (harness.ROOT / "docs" / "seccomp.md").read_text()
    return sorted(set(re.findall(r"`([a-z0-9_]+)`", text.split("## Allowed")[-1])))


def config(args, seccomp):
    spec = {
        "ociVersion": "1.0.0", "hostname": "bench", "root": {"path": "rootfs", "readonly": False},
        "process": {"user": {"uid": 0, "gid": 0}, "args": args, "env": ["PATH=/usr/bin:/bin"], "cwd": "/",
                    "noNewPrivileges": True, "capabilities": {}},
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
            {"destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": ["nosuid", "noexec"]},
            {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev"]},
            {"destination": "/usr", "type": "none", "source": "/usr", "options": ["bind", "ro"]}],
        "linux": {
            "namespaces": [{"type": t} for t in ("pid", "ipc", "uts", "mount", "network", "user")],
            "uidMappings": [{"containerID": 0, "hostID": IDS, "size": 65536}],
            "gidMappings": [{"containerID": 0, "hostID": IDS, "size": 65536}],
            "resources": {"memory": {"limit": 256 << 20}, "pids": {"limit": 64},
                          "cpu": {"quota": 200000, "period": 100000}}}}
    if seccomp:
        spec["linux"]["seccomp"] = {
            "defaultAction": "SCMP_ACT_ERRNO",
            "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"],
            "syscalls": [{"names": allowed_calls(), "action": "SCMP_ACT_ALLOW"}]}
    return spec


class Bundles:
    """Directories that crun and runc run; and one container of each that goes on running."""

    def __init__(self, work):
        work.mkdir(exist_ok=True)
        self.work, self.running = work, []
        self.true = self.make("true", ["/usr/bin/true"])
        self.sleep = self.make("sleep", ["/usr/bin/sleep", "1000"])

    def make(self, name, args):
        path = self.work / name
        root = path / "rootfs"
        root.mkdir(parents=True)
        for directory in ("proc", "dev", "tmp", "usr", "sys"):
            (root / directory).mkdir()
        for link in ("bin", "lib", "lib64"):
            (root / link).symlink_to(f"usr/{link}")
        for at in (self.work, path, root):
            at.chmod(0o755)
        shutil.chown(root, IDS, IDS)
        (path / "config.json").write_text(json.dumps(config(args, True)))
        return path

    def peers(self):
        out = [f"bwrap={BWRAP}"]
        for tool in ("crun", "runc"):
            if shutil.which(tool):
                out.append(f"{tool}={self.command(tool)}")
                out.append(f"{tool}-exec={tool} --root {self.work}/{tool} exec {self.hold(tool)} /usr/bin/true")
        return out

    def command(self, tool, number=0, options=""):
        """The whole life of a container, in words."""
        name = f"bench-{tool}{number}-{self.work.name}"
        return f"{tool} --root {self.work}/{tool}{number} {options} run --bundle {self.true} {name}"

    def hold(self, tool):
        name = f"hold-{tool}-{self.work.name}"
        subprocess.run(inside([tool, "--root", self.work / tool, "run", "-d", "-b", self.sleep, name]), check=True,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60)
        self.running.append((tool, name))
        return name

    def close(self):
        for tool, name in self.running:
            subprocess.run(inside([tool, "--root", self.work / tool, "delete", "-f", name]), timeout=60, check=False)


def inside(argv):
    """In a mount namespace without the cgroup2 mount of a machine that has both kinds."""
    mounts = pathlib.Path("/proc/self/mounts").read_text()
    both = re.search(r"^\S+ (\S+) cgroup2 ", mounts, re.M) if re.search(r"^\S+ \S+ cgroup ", mounts, re.M) else None
    argv = [str(a) for a in argv]
    return ["unshare", "-m", "sh", "-c", 'umount "$0" && exec "$@"', both.group(1), *argv] if both else argv


def box(bench, *args, timeout=600):
    state = bench.work / "state"
    state.mkdir(exist_ok=True, mode=0o700)
    argv = [bench.build / "bench" / "box", args[0], args[1], state, *args[2:]]
    done = subprocess.run(inside(argv), capture_output=True, text=True, timeout=timeout, check=False)
    if done.returncode != 0:
        raise AssertionError(f"box {args[0]} ended with {done.returncode}: {done.stderr[-300:]}")
    return {line.split()[0]: [float(v) for v in line.split()[1:]] for line in done.stdout.splitlines()}


def p99(values):
    return sorted(values)[len(values) * 99 // 100]


def cycle(bench):
    bundles = Bundles(bench.work)
    try:
        got = box(bench, "cycle", 30 if bench.quick else 100, *bundles.peers())
    finally:
        bundles.close()
    bench.figures["sandboxes"] = got

    def against(what, ours, peer, most):
        if peer not in got:
            bench.row(what, None, None, None, f"<= {most} x", False)
            return
        mine, theirs = statistics.median(got[ours]) / 1000, statistics.median(got[peer]) / 1000
        bench.row(what, mine, theirs, mine / theirs, f"<= {most} x", mine / theirs <= most, "ms")

    inside, outside = statistics.median(got["inside"]) / 1000, statistics.median(got["vfork"]) / 1000
    bench.row("vfork+exec by a program in a sandbox vs outside", inside, outside, inside / outside, "", True, "ms")
    against("first exec in a warm sandbox vs posix_spawn", "warm", "spawn", 1.15)
    against("exec in a running sandbox vs vfork+exec", "exec", "vfork", 1.3)
    against("  vs crun exec", "exec", "crun-exec", 0.1)
    if "crun-exec" in got:  # nobody starts a program in less
        floor = statistics.median(got["vfork"]) / statistics.median(got["crun-exec"])
        bench.row("    the floor: vfork+exec vs crun exec", outside, statistics.median(got["crun-exec"]) / 1000, floor,
                  "", True, "ms")
    against("  vs runc exec", "exec", "runc-exec", 0.05)
    against("create + exec + destroy vs bwrap", "cold", "bwrap", 0.75)
    against("  vs crun with a filter like Docker's", "cold", "crun", 0.15)
    against("  vs runc with the same", "cold", "runc", 0.08)
    against("  network namespace made on the way, vs bwrap", "fresh", "bwrap", 0.75)
    tail = p99(got["cold"]) / statistics.median(got["cold"])
    bench.row("  p99 vs its own median", p99(got["cold"]) / 1000, statistics.median(got["cold"]) / 1000, tail, "<= 3 x",
              tail <= 3, "ms")
    pause = statistics.median(got["pause"]) / 1000
    bench.row("pause", pause, None, None, "<= 1 ms", pause <= 1, "ms")


def sustained(bench):
    """Two at a time, on two cores."""
    bundles = Bundles(bench.work / "sustained")

    def rate(command):
        running = []
        for number in range(2):
            state = bench.work / f"state{number}"
            state.mkdir(exist_ok=True, mode=0o700)
            argv = [bench.build / "bench" / "box", "loop", bench.seconds, state, *command(number).split()]
            running.append(subprocess.Popen(inside(argv), stdout=subprocess.PIPE, text=True))
        return sum(int(p.communicate(timeout=120)[0].split()[1]) for p in running) / bench.seconds

    who = {"atoll": lambda number: "", "bwrap": lambda number: BWRAP}
    for tool in ("crun", "runc"):
        if shutil.which(tool):
            who[tool] = lambda number, tool=tool: bundles.command(tool, number)
    got = {name: [] for name in who}
    for _ in range(bench.rounds):
        for name, command in who.items():
            got[name].append(rate(command))
    bench.figures["sustained"] = got
    for name, what, least in ("bwrap", "sustained create + exec + destroy, 2 cores, vs bwrap", 1), \
                             ("crun", "  vs crun", 6), ("runc", "  vs runc", 10):
        if name not in got:
            bench.row(what, None, None, None, f">= {least} x", False)
            continue
        ratio = statistics.median(a / b for a, b in zip(got["atoll"], got[name]))
        bench.row(what, statistics.median(got["atoll"]), statistics.median(got[name]), ratio, f">= {least} x",
                  ratio >= least, "/s")


def gvisor(bench):
    """No target: another kind of wall, and another price."""
    if not shutil.which("runsc"):
        bench.row("create + exec + destroy vs runsc: not installed", None, None, None, "", True)
        return
    bundles = Bundles(bench.work / "gvisor")
    for path in bundles.work.glob("*/config.json"):
        spec = json.loads(path.read_text())
        spec["linux"].pop("seccomp")  # it has its own
        path.write_text(json.dumps(spec))
    got = box(bench, "cycle", 5, f"runsc={bundles.command('runsc', options=RUNSC)}")
    bench.figures["gvisor"] = got
    mine, theirs = statistics.median(got["cold"]) / 1000, statistics.median(got["runsc"]) / 1000
    bench.row("create + exec + destroy vs runsc (ptrace)", mine, theirs, mine / theirs, "", True, "ms")


FEW = 500
SUPERBLOCKS = 5  # of a sandbox: overlay, tmpfs, proc, devpts, mqueue


def empty_group_kb(count=200):
    """What the kernel takes for a memory cgroup that nobody is in, and how much of it are places for superblocks (in
    kmalloc-1k: 64 places in each); None where there is no such mount."""
    found = re.search(r"^\S+ (\S+) cgroup \S*\bmemory\b", pathlib.Path("/proc/self/mounts").read_text(), re.M)
    if not found:
        return None

    def taken():
        whole = int(re.search(r"SUnreclaim: +(\d+)", pathlib.Path("/proc/meminfo").read_text()).group(1))
        places = int(re.search(r"^kmalloc-1k +(\d+)", pathlib.Path("/proc/slabinfo").read_text(), re.M).group(1))
        return whole, places

    made = [pathlib.Path(found.group(1)) / f"bench-empty-{number}" for number in range(count)]
    before = taken()
    try:
        for path in made:
            path.mkdir()
        return tuple((now - then) / count for now, then in zip(taken(), before))
    finally:
        for path in made:
            path.rmdir()


def many(bench):
    """What a sandbox takes is counted in objects (box.c): memory that is available goes up and down with what others,
    and earlier runs, give back late; by that the same build had 65 and 627 kB on one day.

    For every memory cgroup the kernel keeps a place for each superblock that there ever was at once since the
    machine was started: 390 kB after one run of this with 5,000. What earlier runs left of that is no part of a
    sandbox; what the superblocks of these 500 need is."""
    count = 500 if bench.quick else 5000
    empty = empty_group_kb()
    got = box(bench, "many", count, timeout=900)
    bench.figures["many"] = got
    one, few, all_ = (statistics.median(got[name]) / 1000 for name in ("one", "few", "all"))
    whole = got["kb_counted"][0]
    earlier = max(0, empty[1] - SUPERBLOCKS * FEW / 64) if empty else 0
    bench.row(f"idle sandbox, all-in ({FEW} of them)", whole - earlier, None, None, "<= 450 kB", whole - earlier <= 450,
              "kB")
    if empty:
        bench.row("  with places for superblocks of earlier sandboxes", whole, None, None, "", True, "kB")
        bench.row("  an empty memory cgroup, with those", empty[0], None, None, "", True, "kB")
    bench.row("  an empty network namespace alone", got["kb_netns"][0], None, None, "", True, "kB")
    together = got["kb_all"][0] / (1 << 20)
    bench.row(f"  {count:,} of them, together", together, None, None, "<= 24 GiB", together <= 24, "GiB")
    # In 200 of them, one after the other: each finds the processor's caches full of the others' memory. That costs a
    # little whenever there is more than one; what there are more of than 200 must cost nothing.
    bench.row(f"  exec in each of 200, of {count:,} vs of 200", all_, few, all_ / few, "<= 1.1 x", all_ / few <= 1.1,
              "ms")
    bench.row("    vs over and over in the only one", all_, one, all_ / one, "", True, "ms")
    bench.row("  left when all were destroyed", got["left"][0], None, None, "0", got["left"][0] == 0)


def beside(bench):
    """Mean of 200, and not the time until it is there: on a busy machine that depends on others. What sandboxes do and
    what the kernel does later, in threads of its own, is not counted."""
    count = 500 if bench.quick else 3000
    got = box(bench, "beside", count, timeout=900)
    bench.figures["beside"] = got
    alone, many_ = (got["first_cpu"][0] + got["again_cpu"][0]) / 2000, got["beside_cpu"][0] / 1000
    bench.row(f"processor time to create + destroy beside {count:,} vs the first", many_, alone, many_ / alone,
              "<= 1.3 x", many_ / alone <= 1.3, "ms")


def pty(bench):
    got = box(bench, "pty", 8)
    bench.figures["pty"] = got
    plain, relay = statistics.median(got["plain"]), statistics.median(got["relay"])
    bench.row("terminal output through init vs the kernel's own", relay, plain, relay / plain, ">= 0.85 x",
              relay / plain >= 0.85, "MB/s")
