"""Replication of changes from one server to another: queues of tasks, sent in batches, late, lost or out of
order.

A task replaces an older one of the same kind for the same instance; different kinds do not wait for each
other.

Source: PeerEurekaNode, ReplicationTaskProcessor and AcceptorExecutor of Netflix/eureka.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from eurekube_provider.dev.eureka.documents import ServerResponse, info_document, read_info
from eurekube_provider.dev.eureka.instance_registry import UNKNOWN, Document, Info, InstanceRegistry
from eurekube_provider.dev.eureka.virtual_clock import Clock

BATCHING_DELAY_MS = 500
MOST_ITEMS = 250
LONGEST_MS = 30_000
RETRY_MS = 100
BUSY_MS = 1_000
OVERTAKEN_MS = 2_000

STATUSES = ("StatusUpdate", "DeleteStatusOverride")

Send = Callable[[list[Document]], ServerResponse | None]
"""A function that sends a batch to the other server; it returns None where no answer came back."""


@dataclass(slots=True)
class Task:
    """One change that a server must tell another."""

    action: str
    app: str
    id: str
    info: Info | None
    overridden: str | None
    made_ms: int
    expires_ms: int

    @property
    def name(self) -> str:
        """The key of the task; a new task replaces a waiting one with the same key."""
        return f"{self.action}#{self.app}/{self.id}"

    def item(self) -> Document:
        """Return the item of a batch, with the instance as it is *now*, not as it was when the task was
        made.
        """
        item: Document = {"action": self.action, "appName": self.app, "id": self.id}
        if self.info is not None:
            item["lastDirtyTimestamp"] = self.info.dirty_ms
            item["status"] = self.info.status
            item["overriddenStatus"] = self.overridden
            if self.action == "Register":
                item["instanceInfo"] = info_document(self.info, None)
        return item


@dataclass(slots=True)
class Link:
    """The replication from one server to another.

    :ivar late_ms: the milliseconds until a batch arrives.
    :ivar is_overtaken: True if later batches overtake the next one: a server sends several at once.
    :ivar is_repeated: True if the next batch with a status is carried out, but answered too late: after 200
        ms by default the sender takes the batch for lost, and sends it again.
    """

    clock: Clock
    registry: InstanceRegistry
    send: Send
    pending: dict[str, Task] = field(default_factory=dict)
    closed: bool = False
    late_ms: int = 0
    is_overtaken: bool = False
    is_repeated: bool = False

    def tell(self, action: str, app: str, instance_id: str, info: Info | None, status: str | None) -> None:
        """Queue a task; ``status`` is an override for a heartbeat."""
        if info is None and action != "Cancel":
            return
        interval = info.renewal_interval_s * 1000 if info else 0
        life_ms = interval if action in ("Register", "Heartbeat") else LONGEST_MS
        now = self.clock.now_ms
        overridden = status if action == "Heartbeat" else None
        task = Task(action, app, instance_id, info, overridden, now, now + life_ms)
        self.pending[task.name] = task  # one of the same name keeps its place in the queue
        self.clock.after(BATCHING_DELAY_MS, self.flush)

    def flush(self) -> None:
        """Send the tasks that have waited for the batching delay."""
        if self.closed:
            return
        now = self.clock.now_ms
        while self.pending and now - next(iter(self.pending.values())).made_ms >= BATCHING_DELAY_MS:
            names = list(self.pending)[:MOST_ITEMS]
            tasks = [task for name in names if (task := self.pending.pop(name)).expires_ms > now]
            if tasks:
                self.deliver(tasks)

    def deliver(self, tasks: list[Task]) -> None:
        """Send tasks as one batch."""
        items = [task.item() for task in tasks]
        late_ms, self.is_overtaken = (OVERTAKEN_MS if self.is_overtaken else self.late_ms), False
        if late_ms:
            self.clock.after(late_ms, lambda: self._arrive(tasks, items))
        else:
            self._arrive(tasks, items)

    def _arrive(self, tasks: list[Task], items: list[Document]) -> None:
        """Hand a batch to the other server, and act on its answers."""
        if self._is_over():
            return
        answer = self.send(items)
        if self._is_over():
            return
        if self.is_repeated and any(task.action in STATUSES for task in tasks):
            self.is_repeated = False
            self.clock.after(BUSY_MS, lambda: self._again(tasks))
            return
        if answer is None or answer.status_code == 503:
            self.clock.after(RETRY_MS, lambda: self._again(tasks))
            return
        if answer.status_code >= 300:
            return  # discarded
        for task, entry in zip(tasks, answer.json["responseList"], strict=True):
            code = entry["statusCode"]
            if task.action != "Heartbeat" or 200 <= code < 300 or task.info is None:
                continue
            if code == 404:
                self.tell("Register", task.app, task.id, task.info, None)
            elif entry.get("responseEntity"):
                self._take(task, read_info(entry["responseEntity"], self.clock.now_ms))

    def _is_over(self) -> bool:
        return self.closed

    def _again(self, tasks: list[Task]) -> None:
        """Put undelivered tasks at the front of the queue, unless a newer task of the same name waits."""
        fresh = {
            task.name: task
            for task in tasks
            if task.name not in self.pending and task.expires_ms > self.clock.now_ms
        }
        self.pending = {**fresh, **self.pending}
        self.flush()

    def _take(self, task: Task, theirs: Info) -> None:
        """Register the newer instance that the other server holds."""
        if theirs.overridden != UNKNOWN:
            self.registry.store_override(task.app, task.id, theirs.overridden)
        self.registry.register(theirs, replicated=True)
