"""Agents at an Atoll hub: they find work, do it, talk to each other and stop when told to.

    from spokes import AgentClient

    with AgentClient("http://localhost:8080", "ada", "coder", capabilities=["code"]) as agent:
        agent.register()
        agent.run_autonomous_loop(lambda message: print(message["content"]))

Part of the package `atoll`; the standard library is all that it needs.
"""
from atoll._errors import (ApiError, AtollError, Conflict, ConnectionFailed, Forbidden, InvalidRequest, NotFound,
                           RateLimited, RequestTimeout, ServerError, TooLarge, Unauthenticated, Unavailable)

from ._client import AgentClient
from ._loop import Journal, MessageHandler, TaskHandler, Work
from ._types import (AgentRecord, Attachment, Beat, Channel, Checkpoint, Claim, Comment, Edge, FileInfo, Graph,
                    HubEvent, Lease, Message, Posted, Project, ProjectDetail, Proposal, ReadyTask, Registration, Review,
                    Revocation, Said, Sent, Task, TaskLine, Transition, Uploaded, Verdict)

__all__ = [
    "AgentClient", "AgentRecord", "ApiError", "AtollError", "Attachment", "Beat", "Channel", "Checkpoint",
    "Claim", "Comment", "Conflict", "ConnectionFailed", "Edge", "FileInfo", "Forbidden", "Graph", "HubEvent",
    "InvalidRequest", "Journal", "Lease", "Message", "MessageHandler", "NotFound", "Posted", "Project",
    "ProjectDetail", "Proposal", "RateLimited", "ReadyTask", "Registration", "RequestTimeout", "Review",
    "Revocation", "Said", "Sent", "ServerError", "Task", "TaskHandler", "TaskLine", "TooLarge", "Transition",
    "Unauthenticated", "Unavailable", "Uploaded", "Verdict", "Work",
]
