"""Two agents that review each other's tasks.

    review_each_other.py HUB_URL [TASKS]

Ada and Eve take tasks from one board. Who has done one uploads the result, makes the other one its reviewer and tells
her. She reads it: a draft is sent back once with a note, what is good is approved, and its owner moves it to done. It
ends when all tasks are done. On a hub that wants credentials, ADA_TOKEN and EVE_TOKEN are their tokens.
"""
import os
import sys
import threading

from spokes import AgentClient, Message, Work

ADA, EVE = os.environ.get("ADA", "ada"), os.environ.get("EVE", "eve")
TOKENS = {ADA: os.environ.get("ADA_TOKEN"), EVE: os.environ.get("EVE_TOKEN")}


class Colleague:
    """One of the two: does tasks, and reviews those of the other."""

    def __init__(self, hub: str, name: str, other: str, project: str) -> None:
        self.client = AgentClient(hub, name, "example", token=TOKENS[name])
        self.name, self.other, self.project = name, other, project

    def work(self, work: Work) -> None:
        """A task of ours: also one that came back from its review."""
        notes = [r["note"] for r in work.client.list_reviews(self.project, work.task_id)]
        path = f"results/{work.task_id}.txt"
        lease = work.client.take_lease(self.project, [path], reason=work.task["title"])
        text = f"{work.task['title']}, {'corrected: ' + notes[-1] if notes else 'a draft'}\n"
        work.client.upload_file(self.project, path, text.encode())
        work.client.release_lease(self.project, lease["id"])
        work.checkpoint("written", f"{len(notes)} reviews so far")
        work.client.add_reviewer(self.project, work.task_id, self.other)
        work.client.move_task(self.project, work.task_id, "in_review")
        work.client.send_message(self.other, work.task_id, "review", attachments=[
            {"project": self.project, "filename": path}])

    def message(self, message: Message) -> None:
        if message["type"] == "review":
            self.review(message["content"], message["attachments"][0]["filename"])
        elif message["type"] == "approved":
            self.client.move_task(self.project, message["content"], "done", note="as " + message["from"] + " says")

    def review(self, task: str, path: str) -> None:
        text = self.client.download_file(self.project, path).decode()
        if "draft" in text:
            self.client.request_changes(self.project, task, "please finish it")
            print(f"{self.name}: back to {self.other}: {text}", end="")
        else:
            self.client.approve_task(self.project, task, "good")
            self.client.send_message(self.other, task, "approved")
            print(f"{self.name}: approved: {text}", end="")

    def live(self, stop: threading.Event) -> None:
        def failed(error: Exception) -> None:
            print(f"{self.name}: {error!r}", file=sys.stderr)
        with self.client:
            self.client.run_autonomous_loop(self.message, poll_interval=0.1, heartbeat_interval=1, stop_event=stop,
                                            task_handler=self.work, projects=[self.project], on_error=failed)


def main() -> None:
    hub, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 4
    with AgentClient(hub, ADA, "example", token=TOKENS[ADA]) as first:
        first.register()
        project = first.create_project("reviewed by each other")["id"]
        for n in range(count):
            first.create_task(project, f"chapter {n + 1}", priority=f"P{n % 4}", required_reviewers=1)
        stop = threading.Event()
        both = [Colleague(hub, ADA, EVE, project), Colleague(hub, EVE, ADA, project)]
        threads = [threading.Thread(target=one.live, args=(stop,)) for one in both]
        for thread in threads:
            thread.start()
        while any(task["status"] != "done" for task in first.list_tasks(project)):
            stop.wait(0.2)
        stop.set()
        for thread in threads:
            thread.join()
        metrics = first.get_metrics(project)
        print(f"done: {metrics['by_status']['done']} of {metrics['total_tasks']}, by {metrics['agent_throughput']}")


if __name__ == "__main__":
    main()
