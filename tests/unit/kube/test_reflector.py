"""The local copy of all objects of one kind, against a small API server that fails in many ways."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from kubernetes import client

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.kube import access
from eurekube_provider.kube import reflector as module
from eurekube_provider.kube.access import PAGE_SIZE, SERVICES, KubeAccess
from eurekube_provider.kube.reflector import Reflector, TrimFunction
from lab.waiting import wait_until

Object = dict[str, Any]
Query = dict[str, str]
PATH = "/api/v1/services"
WAIT_SECONDS = 10


def thing(name: str, version: int = 1, **fields: Any) -> Object:
    """Return an object of the API."""
    return {"metadata": {"namespace": "shop", "name": name, "resourceVersion": str(version)}, **fields}


class Api:
    """An API server of one kind of objects: a list in pages, and watches that tests feed.

    Each watch gets the next of ``scripts``: events (dictionaries), raw bytes, or ``CLOSE`` (end it cleanly),
    ``BREAK`` (cut the connection); afterwards it stays open and silent until the test is over.
    """

    CLOSE, BREAK = "close", "break"

    def __init__(self) -> None:
        self.items: list[Object] = []
        self.version = 10
        self.page_size = 1000
        self.lists: list[Query] = []
        self.version_reads: list[Query] = []
        self.watches: list[Query] = []
        self.scripts: list[list[Any]] = []
        self.refusals: list[tuple[int, bytes]] = []
        self.over = threading.Event()
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                query = dict(parse_qsl(parts.query))
                if parts.path != PATH:
                    self.send(404, b"{}")
                elif query.get("watch") == "true":
                    self.watch(query)
                elif api.refusals:
                    api.lists.append(query)
                    self.send(*api.refusals.pop(0))
                else:
                    self.list(query)

            def list(self, query: Query) -> None:
                (api.version_reads if query["limit"] == "1" else api.lists).append(query)
                start = int(query.get("continue", "0"))
                page = api.items[start : start + api.page_size]
                rest = start + api.page_size < len(api.items)
                metadata = {"resourceVersion": str(api.version)}
                if rest:
                    metadata["continue"] = str(start + api.page_size)
                self.send(200, json.dumps({"items": page, "metadata": metadata}).encode())

            def watch(self, query: Query) -> None:
                script = api.scripts.pop(0) if api.scripts else []
                api.watches.append(query)
                if script and isinstance(script[0], tuple):
                    self.send(*script[0])
                    return
                self.send_response(200)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for step in script:
                    if step == Api.CLOSE:
                        self.chunk(b"")
                        return
                    if step == Api.BREAK:
                        self.close_connection = True
                        self.wfile.flush()
                        self.connection.shutdown(socket.SHUT_RDWR)
                        return
                    if isinstance(step, threading.Event):
                        step.wait(WAIT_SECONDS)
                        continue
                    if isinstance(step, dict) and step["type"] != "ERROR":
                        api.version = max(api.version, int(step["object"]["metadata"]["resourceVersion"]))
                    self.chunk(step if isinstance(step, bytes) else json.dumps(step).encode() + b"\n")
                api.over.wait(60)
                self.close_connection = True

            def chunk(self, data: bytes) -> None:
                self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
                self.wfile.flush()

            def send(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Log nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        configuration = client.Configuration(host=self.url)
        configuration.retries = False
        configuration.connection_pool_maxsize = 4
        self.access = KubeAccess(configuration)

    def stop(self) -> None:
        """Stop the server."""
        self.over.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


Change = tuple[Object | None, Object | None]


class Copy(Reflector):
    """A reflector of Services that records the changes that it reports."""

    def __init__(self, access: KubeAccess, trim: TrimFunction = lambda item, _: item) -> None:
        self.changes: list[Change] = []
        super().__init__(access, SERVICES, trim, lambda old, new: self.changes.append((old, new)))

    @property
    def names(self) -> list[str]:
        """Sorted names of all objects."""
        return sorted(item["metadata"]["name"] for item in self.objects())


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """Yield an API server, with back-offs short enough for a test."""
    monkeypatch.setattr(module, "FIRST_RETRY_DELAY_SECONDS", 0.01)
    running = Api()
    yield running
    running.stop()


@pytest.fixture
def copy(api: Api) -> Iterator[Copy]:
    """Yield a reflector that is not started yet."""
    reflector = Copy(api.access)
    yield reflector
    reflector.stop()


def awaited(condition: Callable[[], object], what: str) -> None:
    """Wait until a condition holds, which another thread fulfils."""
    wait_until(condition, what, WAIT_SECONDS)


def test_it_lists_in_pages(api: Api, copy: Copy) -> None:
    """All pages of the first list are stored and reported as new before the copy counts as synced."""
    api.items = [thing(name) for name in "abcde"]
    api.page_size = 2
    assert not copy.is_synced
    copy.start()
    awaited(lambda: copy.is_synced, "the first list")
    assert copy.names == list("abcde")
    assert [query.get("continue") for query in api.lists] == [None, "2", "4"]
    assert all(query["limit"] == str(PAGE_SIZE) for query in api.lists)
    assert [(old, new and new["metadata"]["name"]) for old, new in copy.changes] == [
        (None, name) for name in "abcde"
    ]
    assert copy.get("shop", "a") == thing("a")
    assert copy.get("shop", "z") is None
    assert copy.objects("elsewhere") == []


def test_it_follows_changes(api: Api, copy: Copy) -> None:
    """Each added, modified or deleted object is reported with its versions before and after."""
    api.items = [thing("a")]
    new, old = thing("b", 11), thing("a", 12, spec=1)
    api.scripts = [
        [
            {"type": "ADDED", "object": new},
            {"type": "MODIFIED", "object": old},
            {"type": "DELETED", "object": thing("b", 13)},
        ]
    ]
    copy.start()
    awaited(lambda: len(copy.changes) == 4, "all changes")
    assert copy.changes == [(None, thing("a")), (None, new), (thing("a"), old), (new, None)]
    assert copy.names == ["a"]
    assert api.watches[0]["resourceVersion"] == "10"
    assert api.watches[0]["allowWatchBookmarks"] == "true"


def test_an_answer_that_is_older_than_what_was_reported_is_not_taken(copy: Copy) -> None:
    """The answer to our write is ignored if the watch has reported a newer version or a deletion of the
    object.
    """
    copy.replace_from_list([{"metadata": {"resourceVersion": "10"}, "items": [thing("a", 9)]}])
    ours, theirs = thing("a", 11, spec="ours"), thing("a", 12, spec="theirs")
    copy.store_write_answer(ours)
    assert copy.objects() == [ours], "before a watch tells of it"
    for type_, item in (("MODIFIED", ours), ("MODIFIED", theirs)):
        copy.apply_event(type_, item)
    copy.store_write_answer(ours)
    assert copy.objects() == [theirs]
    copy.apply_event("DELETED", thing("a", 13))
    copy.store_write_answer(thing("a", 12, spec="ours"))
    assert copy.objects() == []
    copy.store_write_answer(thing("a", 14))
    assert copy.names == ["a"]


def test_a_removal_of_ours_is_of_no_other_object_of_its_name(copy: Copy) -> None:
    """The answer to our deletion does not remove the next object of the same name, which has another UID."""

    def one(uid: str) -> Object:
        return {"metadata": {**thing("a")["metadata"], "uid": uid}}

    copy.apply_event("ADDED", one("1"))
    copy.remove_deleted(one("1"))
    copy.remove_deleted(one("1"))
    assert copy.changes == [(None, one("1")), (one("1"), None)]
    copy.apply_event("ADDED", one("2"))
    copy.remove_deleted(one("1"))
    assert copy.objects() == [one("2")]


def test_changes_are_reported_in_the_order_in_which_they_are_taken(api: Api) -> None:
    """Changes by the watch and by answers to writes are reported in the order in which the copy takes
    them.
    """
    reported: list[Object | None] = []
    others: list[threading.Thread] = []

    def listen(_: Object | None, new: Object | None) -> None:
        if not others:
            others.append(threading.Thread(target=lambda: reflector.store_write_answer(thing("a", 12))))
            others[0].start()
            others[0].join(0.1)  # so that who does not wait is notified of first
        reported.append(new)

    reflector = Reflector(api.access, SERVICES, lambda item, _: item, listen)
    reflector.apply_event("ADDED", thing("a", 11))
    others[0].join(WAIT_SECONDS)
    assert reported == [thing("a", 11), thing("a", 12)]
    assert reflector.objects() == [reported[-1]]


def test_a_change_whose_report_fails_is_reported_again_and_delays_no_other(api: Api) -> None:
    """After an error of the listener the other changes are reported, and the copy is not synced before that
    one is reported as well.
    """
    api.items = [thing(name) for name in "abc"]
    api.scripts = [[{"type": "DELETED", "object": thing("b", 11)}]]
    told: list[tuple[str | None, ...]] = []
    failing: set[tuple[str | None, ...]] = {(None, "a"), ("b", None)}

    def listen(old: Object | None, new: Object | None) -> None:
        names = tuple(one["metadata"]["name"] if one else None for one in (old, new))
        told.append(names)
        if names in failing:
            failing.remove(names)
            api.items = [thing(name) for name in ("abc" if failing else "ac")]
            synced.append(reflector.is_synced)
            raise RuntimeError("can't start new thread")

    synced: list[bool] = []
    reflector = Reflector(api.access, SERVICES, lambda item, _: item, listen)
    reflector.start()
    awaited(lambda: len(told) == 6, "all reports")
    reflector.stop()
    assert told == [(None, "a"), (None, "b"), (None, "c"), (None, "a"), ("b", None), ("b", None)]
    assert synced == [False, True]
    assert sorted(item["metadata"]["name"] for item in reflector.objects()) == ["a", "c"]


def test_an_object_whose_report_always_fails_keeps_no_other_from_being_followed(api: Api) -> None:
    """After some lists the copy is synced, with that object too: a syncer that lacks counts as deleted."""
    api.items = [thing(name) for name in "ab"]
    api.scripts = [[{"type": "ADDED", "object": thing("c", 11)}]]
    told: list[str] = []

    def listen(_: Object | None, new: Object | None) -> None:
        name = str(new and new["metadata"]["name"])
        told.append(name)
        if name == "a":
            assert not reflector.is_synced
            raise RuntimeError("a fault")

    reflector = Reflector(api.access, SERVICES, lambda item, _: item, listen)
    reflector.start()
    awaited(lambda: "c" in told, "the event")
    reflector.stop()
    assert told == ["a", "b", *"a" * module.MOST_FAILED_REPORTS, "c"]
    assert sorted(item["metadata"]["name"] for item in reflector.objects()) == ["a", "b", "c"]
    assert reflector.is_synced


def test_events_cut_anywhere(api: Api, copy: Copy) -> None:
    """Events are read even if one arrives in pieces, or several in one piece."""
    line = b"".join(
        json.dumps({"type": "ADDED", "object": thing(name, 11, text="é\\n")}).encode() + b"\n"
        for name in "abc"
    )
    api.scripts = [[line[:5], line[5:90], line[90:]]]
    copy.start()
    awaited(lambda: copy.names == ["a", "b", "c"], "all three")


def test_an_event_without_end_is_given_up(api: Api, copy: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch whose event does not end is taken up again, before it takes all memory."""
    monkeypatch.setattr(access, "LONGEST_EVENT_BYTES", 2**20)
    item = thing("big", 12, spec={"text": "x" * 2**19})
    api.items = [item]
    api.scripts = [[{"type": "ADDED", "object": item}, *[b"x" * 2**16] * 20]]
    copy.start()
    awaited(lambda: len(api.watches) == 2, "the next watch")
    assert (copy.names, copy.restarts["failed"]) == (["big"], 1)
    assert api.watches[1]["resourceVersion"] == "12"


def test_only_what_is_kept_counts(api: Api) -> None:
    """A change that affects no kept field is not reported."""
    copy = Copy(
        api.access, lambda item, _: {"metadata": {k: item["metadata"][k] for k in ("namespace", "name")}}
    )
    api.items = [thing("a")]
    api.scripts = [
        [
            {"type": "MODIFIED", "object": thing("a", 11, status=1)},
            {"type": "ADDED", "object": thing("b", 12)},
        ]
    ]
    copy.start()
    awaited(lambda: copy.names == ["a", "b"], "the later change")
    copy.stop()
    assert len(copy.changes) == 2
    assert copy.get("shop", "a") == {"metadata": {"namespace": "shop", "name": "a"}}


def test_a_watch_that_ends_goes_on_from_its_last_version(api: Api, copy: Copy) -> None:
    """After the usual end of a watch the next one continues from its last version, without a new list."""
    api.scripts = [
        [{"type": "ADDED", "object": thing("a", 11)}, Api.CLOSE],
        [{"type": "ADDED", "object": thing("b", 12)}],
    ]
    copy.start()
    awaited(lambda: copy.names == ["a", "b"], "both")
    assert [query["resourceVersion"] for query in api.watches] == ["10", "11"]
    assert len(api.lists) == 1


def test_a_copy_is_current_only_while_somebody_tells_of_changes(
    api: Api, copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy is not current after its watch broke; ``retry_now`` lists it again."""
    monkeypatch.setattr(module, "FIRST_RETRY_DELAY_SECONDS", 60.0)
    go = threading.Event()
    api.items = [thing("a")]
    api.scripts = [[go, Api.BREAK], []]
    copy.start()
    awaited(lambda: len(api.watches) == 1 and copy.is_current, "the first watch")
    go.set()
    awaited(lambda: not copy.is_current, "the end of the watch")
    api.items = [thing("b")]
    copy.retry_now()
    awaited(lambda: copy.is_current, "a new list")
    assert copy.names == ["b"]
    assert len(api.lists) == 2


def test_a_watch_that_goes_on_is_current_when_it_has_settled(
    api: Api, copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy is current only some time after a new watch began, because the watch may report at once
    that it expired.
    """
    monkeypatch.setattr(module, "WATCH_SETTLE_SECONDS", 0.3)
    api.items = [thing("a")]
    api.scripts = [[Api.BREAK], []]
    copy.start()
    awaited(lambda: len(api.watches) == 2 and copy.is_current, "the second watch")
    assert len(api.lists) == 1


def test_a_copy_is_not_current_after_a_suspension(
    api: Api, copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine that wakes up after minutes nothing was heard meanwhile, and the watch's time-out did not
    go on: it may have broken unnoticed, until it brings something again.
    """
    asleep = [0.0]
    monkeypatch.setattr(module, "boot_clock_seconds", lambda: time.monotonic() + asleep[0])
    event = threading.Event()
    api.items = [thing("a")]
    api.scripts = [[event, {"type": "ADDED", "object": thing("b", 12)}]]
    copy.start()
    awaited(lambda: len(api.watches) == 1 and copy.is_current, "the watch")
    asleep[0] = 300.0
    copy.retry_now()
    assert (copy.is_current, copy.is_usable_by_new_leader) == (False, False)
    event.set()
    awaited(lambda: copy.is_usable_by_new_leader, "the next event")
    assert copy.names == ["a", "b"]


def test_bookmarks_carry_on(api: Api, copy: Copy) -> None:
    """A bookmark changes no object, and a later watch continues from it."""
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "99"}}}
    api.scripts = [[bookmark, Api.CLOSE], []]
    copy.start()
    awaited(lambda: len(api.watches) == 2, "the second watch")
    assert api.watches[1]["resourceVersion"] == "99"
    assert copy.changes == []


@pytest.mark.parametrize("cut", [Api.BREAK, b'{"type": "ADDED", "obj\n'], ids=["connection", "JSON"])
def test_a_broken_watch_is_taken_up_again(api: Api, copy: Copy, cut: Any) -> None:
    """After a break the copy keeps its objects, reports the failure, and continues the watch."""
    api.items = [thing("a")]
    api.scripts = [
        [{"type": "ADDED", "object": thing("b", 11)}, cut],
        [{"type": "ADDED", "object": thing("c", 12)}],
    ]
    copy.start()
    awaited(lambda: copy.names == ["a", "b", "c"], "all three")
    assert [query["resourceVersion"] for query in api.watches] == ["10", "11"]
    awaited(lambda: copy.failure is None, "no failure any more")


def test_while_the_api_is_away_the_copy_stands(api: Api, copy: Copy) -> None:
    """While the API server is away, no object is dropped or reported, and the failure names the server."""
    api.items = [thing("a")]
    copy.start()
    awaited(lambda: copy.is_synced, "the first list")
    awaited(lambda: api.watches, "the watch")
    api.stop()
    awaited(lambda: copy.failure is not None, "the failure")
    assert api.url in str(copy.failure)
    assert copy.names == ["a"]
    assert len(copy.changes) == 1


@pytest.mark.parametrize(
    "expired",
    [
        (410, b'{"message": "too old", "reason": "Expired"}'),
        {"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}},
    ],
    ids=["answer", "event"],
)
def test_an_expired_watch_lists_again(api: Api, copy: Copy, expired: Any) -> None:
    """After a 410 the objects are listed again, and only the differences are reported."""
    api.items = [thing("a"), thing("b")]
    changed = threading.Event()
    api.scripts = [[{"type": "ADDED", "object": thing("c", 11)}, changed, Api.CLOSE], [expired]]
    copy.start()
    awaited(lambda: copy.names == ["a", "b", "c"], "the first state")
    api.items, api.version = [thing("a"), thing("b", 20, spec=1), thing("d", 21)], 30
    changed.set()
    awaited(lambda: len(api.watches) == 3, "the third watch")
    assert copy.names == ["a", "b", "d"]
    assert copy.changes[3:] == [
        (thing("b"), thing("b", 20, spec=1)),
        (None, thing("d", 21)),
        (thing("c", 11), None),
    ]
    assert [query["resourceVersion"] for query in api.watches] == ["10", "11", "30"]


def test_an_api_server_that_was_restored_from_a_backup_is_listed_again(api: Api, copy: Copy) -> None:
    """A version that the API server has not reached is not watched: the watch would stay silent, and would
    never report what changed up to there.
    """
    api.items, api.version = [thing("a"), thing("b", 20)], 20
    ends = threading.Event()
    api.scripts = [[ends, Api.BREAK]]
    copy.start()
    awaited(lambda: api.watches, "the first watch")
    api.items, api.version = [thing("a"), thing("c", 12)], 12
    ends.set()
    awaited(lambda: len(api.watches) == 2, "the second watch")
    assert copy.names == ["a", "c"]
    assert copy.changes[2:] == [(None, thing("c", 12)), (thing("b", 20), None)]
    assert [query["resourceVersion"] for query in api.watches] == ["20", "12"]


def test_the_version_is_read_once_after_each_outage(api: Api, copy: Copy) -> None:
    """One object is read then, and no list: the API server has enough to do."""
    ends = threading.Event()
    api.items = [thing("a"), thing("b")]
    api.scripts = [[ends, Api.BREAK], [(503, b"{}")], [Api.CLOSE], [(429, b"{}")], []]
    copy.start()
    awaited(lambda: api.watches, "the first watch")
    assert api.version_reads == []
    ends.set()
    awaited(lambda: len(api.watches) == 5, "the last watch")
    assert [query["limit"] for query in api.version_reads] == ["1", "1"]
    assert len(api.lists) == 1


def test_another_error_event_lists_again_in_the_end(api: Api, copy: Copy) -> None:
    """After a few refusals of a watch for another reason than 410, the objects are listed again."""
    error = {"type": "ERROR", "object": {"kind": "Status", "code": 500, "message": "no such version"}}
    api.items = [thing("a")]
    api.scripts = [[error, Api.CLOSE]] * module.RELIST_AFTER_FAILURES
    copy.start()
    awaited(lambda: len(api.lists) == 2, "the second list")
    awaited(lambda: len(api.watches) == module.RELIST_AFTER_FAILURES + 1, "the watch after it")
    assert copy.names == ["a"]


def test_an_api_with_too_much_to_do_is_not_asked_for_lists(
    api: Api, copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After answers 429 only the watch is tried again, because a list would cost the API server far more."""
    monkeypatch.setattr(module, "LONGEST_RETRY_DELAY_SECONDS", 0.01)
    api.items = [thing("a")]
    api.scripts = [[(429, b'{"message": "too many requests"}')]] * 10
    copy.start()
    awaited(lambda: len(api.watches) == 11, "the watch after it")
    assert len(api.lists) == 1
    assert {query["resourceVersion"] for query in api.watches} == {"10"}


def test_lists_become_rarer_the_longer_watches_are_refused(
    api: Api, copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While watches go on failing, lists are requested only after 3, 6 and 12 failures."""
    monkeypatch.setattr(
        module, "LONGEST_RETRY_DELAY_SECONDS", 60.0
    )  # a round that takes longer ends the count
    monkeypatch.setattr(module, "backoff_seconds", lambda *_: 0.0)
    monkeypatch.setattr(module, "SHORTEST_GOOD_WATCH_SECONDS", 60.0)
    api.items = [thing("a")]
    api.scripts = [[(500, b'{"message": "etcd"}')]] * 20
    copy.start()
    awaited(lambda: len(api.watches) == 21, "the watch after it")
    assert len(api.lists) == 4  # one after every third would be seven


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        (
            (403, b'{"message": "forbidden: list services", "reason": "Forbidden"}'),
            ["403", "forbidden: list"],
        ),
        ((503, b"<html>"), ["503", "<html>"]),
        ((500, b""), ["500", "no text"]),
    ],
    ids=["403", "503", "500"],
)
def test_a_refused_list(api: Api, copy: Copy, refusal: tuple[int, bytes], words: list[str]) -> None:
    """A refused list is requested again; until then the copy is not synced and the failure tells the
    reason.
    """
    api.items = [thing("a")]
    api.refusals = [refusal] * 3
    failures: list[str] = []

    def is_synced() -> bool:
        if copy.failure:
            failures.append(str(copy.failure))
        return copy.is_synced

    copy.start()
    awaited(is_synced, "the list")
    assert failures
    assert all(word in failures[0] for word in [*words, PATH])
    assert copy.failure is None


def test_a_page_that_expires_starts_the_list_again(api: Api, copy: Copy) -> None:
    """After a 410 in the middle of a list its pages are dropped, and the list starts again."""
    api.items = [thing(name) for name in "abc"]
    api.page_size = 2
    api.refusals = [(410, b'{"message": "continue token expired"}')]
    copy.start()
    awaited(lambda: copy.is_synced, "the first list")
    assert copy.names == ["a", "b", "c"]


def test_a_list_that_is_no_json(api: Api, copy: Copy) -> None:
    """A web page with status 200 in place of a list neither ends the reflector nor counts as an empty
    list.
    """
    api.items = [thing("a")]
    api.refusals = [(200, b"<html>")]
    copy.start()
    awaited(lambda: copy.is_synced, "the first list")
    assert copy.names == ["a"]


def test_a_stopped_copy_tells_nobody(api: Api, copy: Copy) -> None:
    """After ``stop`` no change is reported."""
    later = threading.Event()
    api.scripts = [[later, {"type": "ADDED", "object": thing("a", 11)}, Api.CLOSE]]
    copy.start()
    awaited(lambda: api.watches, "the watch")
    copy.stop()
    later.set()
    awaited(lambda: not any(one.is_alive for one in copy.liveness()), "the end")
    assert copy.changes == []
    assert len(api.watches) == 1


def test_errors_say_what_the_api_said(api: Api) -> None:
    """An API error has the server's message, status code and reason."""
    api.refusals = [(409, b'{"message": "already there", "reason": "AlreadyExists"}')]
    with pytest.raises(
        KubernetesError, match=f"GET {PATH}: the Kubernetes API answered 409: already there"
    ) as caught:
        api.access.get(PATH)
    assert (caught.value.status_code, caught.value.reason) == (409, "AlreadyExists")


def test_an_api_that_is_away_is_named() -> None:
    """The error for a refused connection names the server and the request."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        configuration = client.Configuration(host=url)
        configuration.retries = False
        access = KubeAccess(configuration)
        with pytest.raises(
            KubernetesError, match=f"GET {PATH}: no answer from the Kubernetes API at {url}"
        ) as caught:
            access.get(PATH)
    assert caught.value.status_code is None


def test_a_server_that_ends_every_watch_at_once_is_not_hammered(
    api: Api, copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watch that ends at once without an event counts as a failure, so that the pauses grow."""
    waited: list[int] = []

    def pause(failures: int, *_: float) -> float:
        waited.append(failures)
        return 0.001

    monkeypatch.setattr(module, "backoff_seconds", pause)
    api.scripts = [[Api.CLOSE]] * 5
    copy.start()
    awaited(lambda: len(api.watches) == 6, "one that stays open")
    assert waited == [1, 2, 3, 4, 5]


def test_a_back_off_can_be_cut_short(api: Api, copy: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    """``retry_now`` ends a back-off, as when another part has heard from the API server."""
    monkeypatch.setattr(module, "FIRST_RETRY_DELAY_SECONDS", 3600.0)
    monkeypatch.setattr(module, "LONGEST_RETRY_DELAY_SECONDS", 3600.0)
    api.refusals = [(503, b"{}")]
    copy.start()
    awaited(lambda: copy.failure is not None, "the failure")

    def is_back() -> bool:
        copy.retry_now()
        return copy.is_synced

    awaited(is_back, "the list")


DENIED = (403, b'{"message": "forbidden"}')


def test_a_denial_stands_until_the_api_says_otherwise(
    api: Api, copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A denied copy stays denied during 5xx answers, which tell nothing about rights, until a list
    succeeds.
    """
    monkeypatch.setattr(module, "LONGEST_RETRY_DELAY_SECONDS", 0.05)
    api.refusals = [DENIED, (503, b"{}"), (503, b"{}"), DENIED, *[(500, b"")] * 5]
    seen: set[tuple[int | None, bool]] = set()

    def is_synced() -> bool:
        if copy.failure is not None:
            seen.add((copy.failure.status_code, copy.is_access_denied))
        return copy.is_synced

    copy.start()
    awaited(is_synced, "the list")
    assert {code for code, _ in seen} >= {500, 503}
    assert {refused for code, refused in seen if code != 403} == {True}
    assert not copy.is_access_denied


def test_a_kind_that_is_not_installed_is_one_warning(
    api: Api, copy: Copy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be missing for days; any other failure, and the next time that it is missing, is a warning."""
    monkeypatch.setattr(module, "LONGEST_RETRY_DELAY_SECONDS", 0.05)
    missing = (404, b'{"message": "not found"}')
    api.refusals = [missing] * 4 + [DENIED] * 2 + [missing] * 2
    copy.start()
    awaited(lambda: copy.is_synced, "the list")
    message = "failed to list or watch objects, keeping the old copy and retrying"
    said = [one for one in caplog.records if one.getMessage() == message]
    codes = [
        int(str(one.__dict__["error"]).partition("answered ")[2][:3]) for one in said if one.levelno >= 30
    ]
    assert codes == [404, 403, 403, 404]


def test_a_kind_that_was_listed_before_is_a_warning_each_time(
    api: Api, copy: Copy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A definition that was deleted freezes the copy, so that its 404 is not silent after the first one."""
    monkeypatch.setattr(module, "LONGEST_RETRY_DELAY_SECONDS", 0.05)
    gone = (404, b'{"message": "not found"}')
    api.items = [thing("a")]
    api.scripts = [[gone], [gone], [gone], []]
    copy.start()
    awaited(lambda: len(api.watches) == 4, "the watch that is accepted")
    assert copy.names == ["a"]
    said = [str(one.__dict__["error"]) for one in caplog.records if one.levelname == "WARNING"]
    assert sum("answered 404" in one for one in said) == 3, said


def test_large_objects_come_in_smaller_pages(api: Api) -> None:
    """The number of objects in a page can be set."""
    reflector = Reflector(api.access, SERVICES, lambda one, _: one, lambda *_: None, page_size=50)
    reflector.start()
    try:
        awaited(lambda: reflector.is_synced, "the list")
        assert [query["limit"] for query in api.lists] == ["50"]
    finally:
        reflector.stop()


def test_who_hurries_waits_for_another_word_of_what_was_denied(
    api: Api, copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After ``retry_now`` a denied copy counts as neither denied nor current until the API answers again."""
    monkeypatch.setattr(module, "FIRST_RETRY_DELAY_SECONDS", 3600.0)
    monkeypatch.setattr(module, "LONGEST_RETRY_DELAY_SECONDS", 3600.0)
    api.scripts = [[DENIED], [DENIED]]
    copy.start()
    awaited(lambda: copy.is_access_denied, "the denial")
    asked = threading.Event()
    pages = api.access.pages

    def slow(path: str, **more: Any) -> Iterator[Object]:
        assert asked.wait(WAIT_SECONDS)
        yield from pages(path, **more)

    monkeypatch.setattr(api.access, "pages", slow)
    copy.retry_now()
    assert (copy.is_access_denied, copy.is_current) == (False, False)
    asked.set()
    awaited(lambda: copy.is_access_denied, "the next denial")
    copy.retry_now()
    awaited(lambda: copy.is_current, "the copy")
    assert not copy.is_access_denied


def test_a_copy_that_was_listed_since_is_current_without_a_watch(
    api: Api, copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy listed after ``retry_now`` is level even if every watch ends at once, so that a new leader need
    not wait for ever.
    """
    monkeypatch.setattr(module, "LONGEST_RETRY_DELAY_SECONDS", 0.05)
    api.scripts = [[Api.CLOSE]] * 1000
    copy.start()
    awaited(lambda: copy.is_synced, "the first list")
    assert not copy.is_current_since_retry
    for name in ("a", "b"):
        awaited(lambda: not copy.is_current, "the watch's end")
        api.items.append(thing(name))
        copy.retry_now()
        awaited(lambda: copy.is_current_since_retry, "the list")
        assert name in copy.names


def test_a_denial_must_last_before_a_new_leader_acts_on_the_copy_from_before(
    api: Api, copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An API server denies everything just after its start, before it has read its own rules."""
    monkeypatch.setattr(module, "DENIAL_SETTLE_SECONDS", 3600.0)
    monkeypatch.setattr(module, "LONGEST_RETRY_DELAY_SECONDS", 0.05)
    goes = threading.Event()
    api.items = [thing("a")]
    api.scripts = [[goes, Api.BREAK]]
    copy.start()
    awaited(lambda: api.watches, "the first watch")
    api.refusals = [(503, b"{}")] * 2 + [DENIED] * 1000
    goes.set()
    awaited(lambda: not copy.is_current, "the end of the watch")
    copy.retry_now()
    awaited(lambda: copy.is_access_denied, "the denial")
    assert (copy.is_usable_by_new_leader, copy.is_denied_after_list) == (False, False)
    monkeypatch.setattr(module, "DENIAL_SETTLE_SECONDS", 0.0)
    assert (copy.is_usable_by_new_leader, copy.is_denied_after_list) == (True, True)
    api.items, api.refusals = [thing("b")], []
    awaited(lambda: copy.names == ["b"], "the list")
    assert not copy.is_denied_after_list
