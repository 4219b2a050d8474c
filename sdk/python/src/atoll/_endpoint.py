"""Which server is meant, and with which token: as the command line decides it, most explicit first.

1. the address given, or ATOLL_ADDR; the token of a state directory is sent there only when that
   directory was named too, never to whoever listens at an address;
2. the context given, or ATOLL_CONTEXT;
3. the state directory given, or ATOLL_STATE: its Unix socket and its admin.token;
4. the current context of ~/.config/atoll/contexts.json;
5. the state directories that a server uses by itself.

A token or certificate given, or ATOLL_TOKEN and ATOLL_CA, go before those of a context or directory.
"""
import json
import os
import re
import stat
import sys
from dataclasses import dataclass
from typing import Optional

from ._errors import AtollError

SOCKET, TOKEN = "atoll.sock", "admin.token"
MACHINE_STATE = "/var/lib/atoll"
CONTEXTS_MAX = 262144


@dataclass
class Endpoint:
    """unix is a socket's path, or host and port are set."""
    unix: Optional[str] = None
    host: str = "localhost"
    port: int = 0
    tls: bool = False
    token: Optional[str] = None
    ca: Optional[str] = None

    @property
    def authority(self) -> str:
        """What stands in Host: the port only where it is not the scheme's own."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        usual = self.unix is not None or self.port == (443 if self.tls else 80)
        return name if usual else f"{name}:{self.port}"

    @property
    def local(self) -> bool:
        return (self.unix is not None or self.host in ("localhost", "::1")
                or re.match(r"127(\.\d+){3}$", self.host) is not None)


def parse_address(text: str) -> Endpoint:
    if text.startswith("unix:/"):
        return Endpoint(unix=text[len("unix:"):])
    found = re.match(r"(https?)://(?:\[([0-9A-Fa-f:.]+)\]|([^/:\[\]@?#\s]+))(?::(\d{1,5}))?/?$", text)
    if not found or found.group(4) and not 0 < int(found.group(4)) < 65536:
        raise AtollError(f"{text!r} is no address: http://HOST:PORT, https://HOST:PORT or unix:/PATH")
    tls = found.group(1) == "https"
    return Endpoint(host=found.group(2) or found.group(3), port=int(found.group(4) or (443 if tls else 80)), tls=tls)


def _read_private(path: str, limit: int, owner_only: bool) -> Optional[str]:
    """A regular file's text; None when there is none that we may read."""
    try:
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return None
    with open(fd, "rb") as file:
        mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode):
            return None
        if owner_only and mode & 0o077:
            raise AtollError(f"{path}: others may read it though it holds tokens; chmod 600 it")
        return file.read(limit).decode("utf-8", "replace")


def _own_socket(directory: str) -> bool:
    try:
        owner = os.stat(os.path.join(directory, SOCKET)).st_uid
    except OSError:
        return False
    return owner == os.geteuid() or os.geteuid() == 0


def _default_state() -> str:
    if sys.platform != "win32" and os.geteuid() == 0:
        own = MACHINE_STATE
    else:
        base = os.environ.get("XDG_STATE_HOME", "")
        own = os.path.join(base if base.startswith("/") else os.path.expanduser("~/.local/state"), "atoll")
    if sys.platform != "win32" and _own_socket(MACHINE_STATE) and not _own_socket(own):
        return MACHINE_STATE
    return own


def _from_state(directory: str) -> Endpoint:
    found = Endpoint(unix=os.path.join(os.path.abspath(directory), SOCKET))
    found.token = _token_of(directory)
    return found


def _token_of(directory: str) -> Optional[str]:
    text = _read_private(os.path.join(directory, TOKEN), 4096, False)
    return text.partition("\n")[0].strip() or None if text else None


def _from_context(name: Optional[str]) -> Optional[Endpoint]:
    """The context of this name, or the current one; None when none is current."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    base = base if base.startswith("/") else os.path.expanduser("~/.config")
    text = _read_private(os.path.join(base, "atoll", "contexts.json"), CONTEXTS_MAX, True)
    known = json.loads(text) if text else {}
    wanted = name or known.get("current")
    if not wanted:
        return None
    for context in known.get("contexts", []):
        if context.get("name") == wanted:
            found = parse_address(context["addr"])
            found.token, found.ca = context.get("token"), context.get("ca")
            return found
    raise AtollError(f"there is no context {wanted!r}")


def find(address: Optional[str] = None, token: Optional[str] = None, state: Optional[str] = None,
         context: Optional[str] = None, ca: Optional[str] = None) -> Endpoint:
    env = os.environ.get
    if not (address or context or state):
        address, context, state = env("ATOLL_ADDR"), env("ATOLL_CONTEXT"), env("ATOLL_STATE")
    if address:
        found = parse_address(address)
        found.token = _token_of(state) if state else None
    elif state and not context:
        found = _from_state(state)
    else:
        found = _from_context(context) or _from_state(_default_state())
    found.token = token or env("ATOLL_TOKEN") or found.token
    found.ca = ca or env("ATOLL_CA") or found.ca
    return found
