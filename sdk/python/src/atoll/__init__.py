"""Atoll: sandboxes for agents, from Python. The standard library is all that it needs.

    import atoll

    with atoll.Client() as client, client.sandboxes.create() as box:
        print(box.exec("echo hello").text)
"""
from . import _errors, _models
from ._client import Client, Event
from ._errors import *  # noqa: F401,F403
from ._errors import ApiError, AtollError
from ._files import Change, Files, Watch
from ._model import NOTHING
from ._models import *  # noqa: F401,F403
from ._process import ExecResult, Output, Position, Process
from ._sandbox import Sandbox
from ._terminal import Attachment, Terminal, TerminalEvent, TerminalOutput
from ._transport import VERSION as __version__
from ._transport import Options, Page, Stream
from ._tree import UnpackedTree
from ._websocket import Closed, WebSocket

__all__ = [
    "ApiError", "AtollError", "Attachment", "Change", "Client", "Closed", "Event", "ExecResult", "Files", "NOTHING",
    "Options", "Output", "Page", "Position", "Process", "Sandbox", "Stream", "Terminal", "TerminalEvent",
    "TerminalOutput", "UnpackedTree", "Watch", "WebSocket", "__version__",
    *_models.__all__, *_errors.__all__,
]
