"""The TypeScript SDK as its users have it: compiled, and installed into a directory of its own."""
import fcntl
import filecmp
import shutil
import subprocess

import pytest

import harness

SDK = harness.ROOT / "sdk" / "typescript"


def npm_ci(where):
    """What package-lock.json names, installed once and again when it changes. Files that run side by side
    take turns."""
    if not shutil.which("npm"):
        pytest.skip("npm is not installed")
    lock, done = where / "package-lock.json", where / "node_modules" / ".lock-installed"
    with open(lock, "rb") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if not (done.exists() and filecmp.cmp(lock, done, shallow=False)):
            subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=where, check=True,
                           timeout=180, stdout=subprocess.DEVNULL)
            shutil.copy(lock, done)


def tsc(where, *args):
    done = subprocess.run(["node", SDK / "node_modules" / "typescript" / "bin" / "tsc", *args], cwd=where,
                          capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stdout + done.stderr


def install(where):
    """Makes of a directory one whose programs can import @atoll/sdk."""
    npm_ci(SDK)
    package = where / "node_modules" / "@atoll" / "sdk"
    package.mkdir(parents=True)
    tsc(SDK, "--outDir", package / "dist")
    shutil.copy(SDK / "package.json", package)
    (where / "node_modules" / "@types").symlink_to(SDK / "node_modules" / "@types")
    (where / "node_modules" / "undici-types").symlink_to(SDK / "node_modules" / "undici-types")
    (where / "package.json").write_text('{"type": "module"}')
