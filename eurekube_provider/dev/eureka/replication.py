"""Replication of changes to another server: queues of tasks, sent in batches, late, lost or out of order.

A task replaces an older one of its kind for the same instance; different kinds do not wait for each other.

Source: PeerEurekaNode, ReplicationTaskProcessor and AcceptorExecutor of Netflix/eureka.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from eurekube_provider.dev.eureka.documents import ServerResponse, instance_info_document, parse_instance_info
from eurekube_provider.dev.eureka.instance_registry import UNKNOWN, Document, InstanceInfo, InstanceRegistry
from eurekube_provider.dev.eureka.virtual_clock import Clock

BATCHING_DELAY_MS = 500
MAX_BATCH_ITEMS = 250
MAX_TASK_LIFE_MS = 30_000
RETRY_DELAY_MS = 100
REPEATED_BATCH_DELAY_MS = 1_000
OVERTAKEN_BATCH_DELAY_MS = 2_000

STATUS_ACTIONS = ("StatusUpdate", "DeleteStatusOverride")

SendBatch = Callable[[list[Document]], ServerResponse | None]
"""A function that sends a batch to the other server; it returns None where no answer came back."""


@dataclass(slots=True)
class ReplicationTask:
    """One change that a server must tell another; a heartbeat carries the override of the status."""

    action: str
    app: str
    id: str
    info: InstanceInfo | None
    overridden: str | None
    created_ms: int
    expires_ms: int

    @property
    def key(self) -> str:
        """The key of the task; a new task replaces a waiting one with the same key."""
        return f"{self.action}#{self.app}/{self.id}"

    def to_batch_item(self) -> Document:
        """Return the item of a batch, with the instance as it is *now*, not when the task was made."""
        item: Document = {"action": self.action, "appName": self.app, "id": self.id}
        if self.info is not None:
            item["lastDirtyTimestamp"] = self.info.dirty_ms
            item["status"] = self.info.status
            item["overriddenStatus"] = self.overridden
            if self.action == "Register":
                item["instanceInfo"] = instance_info_document(self.info, None)
        return item


@dataclass(slots=True)
class ReplicationLink:
    """The replication from one server to another.

    :ivar delay_ms: the milliseconds until a batch arrives.
    :ivar is_next_batch_overtaken: True if later batches overtake the next one: a server sends several at
        once.
    :ivar is_next_status_repeated: True if the next batch with a status is carried out, but answered too late:
        after 200 ms by default the sender takes the batch for lost, and sends it again.
    """

    clock: Clock
    registry: InstanceRegistry
    send: SendBatch
    pending: dict[str, ReplicationTask] = field(default_factory=dict)
    closed: bool = False
    delay_ms: int = 0
    is_next_batch_overtaken: bool = False
    is_next_status_repeated: bool = False

    def queue_change(
        self, action: str, app: str, instance_id: str, info: InstanceInfo | None, status: str | None
    ) -> None:
        """Queue a task; ``status`` is an override for a heartbeat."""
        if info is None and action != "Cancel":
            return
        interval = info.renewal_interval_s * 1000 if info else 0
        life_ms = interval if action in ("Register", "Heartbeat") else MAX_TASK_LIFE_MS
        now = self.clock.now_ms
        overridden = status if action == "Heartbeat" else None
        task = ReplicationTask(action, app, instance_id, info, overridden, now, now + life_ms)
        self.pending[task.key] = task  # one of the same name keeps its place in the queue
        self.clock.run_after(BATCHING_DELAY_MS, self.send_due_tasks)

    def send_due_tasks(self) -> None:
        """Send the tasks that have waited for the batching delay."""
        if self.closed:
            return
        now = self.clock.now_ms
        while self.pending and now - next(iter(self.pending.values())).created_ms >= BATCHING_DELAY_MS:
            names = list(self.pending)[:MAX_BATCH_ITEMS]
            tasks = [task for name in names if (task := self.pending.pop(name)).expires_ms > now]
            if tasks:
                self.send_batch(tasks)

    def send_batch(self, tasks: list[ReplicationTask]) -> None:
        items = [task.to_batch_item() for task in tasks]
        delay_ms = OVERTAKEN_BATCH_DELAY_MS if self.is_next_batch_overtaken else self.delay_ms
        self.is_next_batch_overtaken = False
        if delay_ms:
            self.clock.run_after(delay_ms, lambda: self._hand_over_batch(tasks, items))
        else:
            self._hand_over_batch(tasks, items)

    def _hand_over_batch(self, tasks: list[ReplicationTask], items: list[Document]) -> None:
        """Hand a batch to the other server, and act on its answers."""
        if self._is_closed():
            return
        answer = self.send(items)
        if self._is_closed():
            return
        if self.is_next_status_repeated and any(task.action in STATUS_ACTIONS for task in tasks):
            self.is_next_status_repeated = False
            self.clock.run_after(REPEATED_BATCH_DELAY_MS, lambda: self._requeue(tasks))
            return
        if answer is None or answer.status_code == 503:
            self.clock.run_after(RETRY_DELAY_MS, lambda: self._requeue(tasks))
            return
        if answer.status_code >= 300:
            return  # discarded
        for task, entry in zip(tasks, answer.json["responseList"], strict=True):
            code = entry["statusCode"]
            if task.action != "Heartbeat" or 200 <= code < 300 or task.info is None:
                continue
            if code == 404:
                self.queue_change("Register", task.app, task.id, task.info, None)
            elif entry.get("responseEntity"):
                self._adopt_newer_instance(
                    task, parse_instance_info(entry["responseEntity"], self.clock.now_ms)
                )

    def _is_closed(self) -> bool:
        return self.closed

    def _requeue(self, tasks: list[ReplicationTask]) -> None:
        """Put undelivered tasks at the front of the queue, unless a newer task of the same name waits."""
        fresh = {
            task.key: task
            for task in tasks
            if task.key not in self.pending and task.expires_ms > self.clock.now_ms
        }
        self.pending = {**fresh, **self.pending}
        self.send_due_tasks()

    def _adopt_newer_instance(self, task: ReplicationTask, theirs: InstanceInfo) -> None:
        if theirs.overridden != UNKNOWN:
            self.registry.store_override_of_peer(task.app, task.id, theirs.overridden)
        self.registry.register(theirs, replicated=True)
