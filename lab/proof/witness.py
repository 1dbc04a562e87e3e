"""The witness: it records how long each Eureka server shows removed pods, and whether it still holds them.

A server that renders its delta at the very moment of a removal keeps a delta without the removal, until
another change happens there (`docs/guides/zero-downtime.md`). Callers then go on calling the pod, no matter
who removed it and how soon.

The witness reads the same answers as callers, under the same keys of the servers' caches, so that nothing is
rendered for it. An instance that is still shown is read again by its id, past the caches.
"""

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self
from urllib.parse import quote

import requests

from eurekube_provider.core.model import Instance, InstanceKey, Status
from eurekube_provider.eureka.listing import Listing
from eurekube_provider.eureka.protocol.codec import instance_from_json, instances_from_text
from eurekube_provider.eureka.protocol.delta import delta_from_text
from lab.pod import PodLife

_READ_INTERVAL_SECONDS = 0.5
_TIMEOUT_SECONDS = 10.0
_SPRING_HEADERS = {"Accept": "application/json"}
"""Headers of Spring's client that matter to the caches: it sends no `X-Eureka-Accept`."""


@dataclass(frozen=True, slots=True)
class PodSighting:
    """The presence of a pod in one server's lists at one time after the pod's deletion began.

    :ivar is_listed: True if the server's lists show the pod as UP.
    :ivar is_registered: True if the server's registry has it as UP; not read where it is not listed.
    :ivar version: version of the delta, by the server's own count; each newly rendered delta has another one.
    """

    at: float
    is_listed: bool
    is_registered: bool = False
    version: int = 0


@dataclass(frozen=True, slots=True)
class ServerView:
    """One server's view of one pod, in seconds after the pod's deletion began.

    :ivar held: the last time that the server's registry had it as UP.
    :ivar shown: the last time that the server's lists showed it as UP.
    :ivar stale: how long the server showed it, without a pause and in one delta, though it held it no longer.
    """

    server: str
    held: float
    shown: float
    stale: float


def summarize_sightings(server: str, sights: Iterable[PodSighting], deleted_at: float) -> ServerView:
    """Return one server's view of one pod, from all sightings of the pod there."""
    held = shown = stale = 0.0
    since, version = 0.0, None
    for sight in sights:
        after = sight.at - deleted_at
        shown = after if sight.is_listed else shown
        held = after if sight.is_registered else held
        if not sight.is_listed or sight.is_registered:
            version = None
            continue
        if version != sight.version:
            since, version = after, sight.version
        stale = max(stale, after - since)
    return ServerView(server, round(held, 1), round(shown, 1), round(stale, 1))


class Witness:
    """A watch that reads every server twice a second: `with Witness(urls, lives) as witness:`."""

    def __init__(self, urls: Iterable[str], lives: Sequence[PodLife]) -> None:
        self._lives = lives
        self._sights: dict[str, dict[str, list[PodSighting]]] = {url: {} for url in urls}
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(
                target=self._watch_until_stopped, args=(url,), name=f"witness-{url}", daemon=True
            )
            for url in self._sights
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def find_server_views(self, life: PodLife) -> list[ServerView]:
        """Return the views of every server that knew this pod."""
        return [
            summarize_sightings(url, list(sights[life.address]), life.deleted_at or 0.0)
            for url, sights in self._sights.items()
            if life.address in sights
        ]

    def _watch_until_stopped(self, url: str) -> None:
        view: Mapping[InstanceKey, Instance] = {}
        with requests.Session() as session:
            session.trust_env = False
            session.headers.update(_SPRING_HEADERS)
            while not self._ended.wait(_READ_INTERVAL_SECONDS):
                try:
                    view, version = _fetch_view(session, url, view)
                    self._record_sightings(session, url, view, version)
                except requests.RequestException:  # it is being restarted
                    view = {}
                    self._record_sightings(session, url, view, 0)

    def _record_sightings(
        self, session: requests.Session, url: str, view: Mapping[InstanceKey, Instance], version: int
    ) -> None:
        """Record whether a server's lists show each deleted pod that they showed before."""
        up = {one.ip_address: one for one in view.values() if one.status is Status.UP}
        sights = self._sights[url]
        for address in up:
            sights.setdefault(address, [])
        for life in list(self._lives):
            if life.deleted_at is not None and life.address in sights:
                shown = up.get(life.address)
                held = shown is not None and _is_registered_up(session, url, shown)
                sights[life.address].append(PodSighting(time.time(), shown is not None, held, version))


def _fetch_view(
    session: requests.Session, url: str, view: Mapping[InstanceKey, Instance]
) -> tuple[Mapping[InstanceKey, Instance], int]:
    """Return a client's view after its next fetch, and the delta's version.

    The view is the former one with the delta applied, or the full list where the counts do not match.
    """
    answer = session.get(f"{url}/apps/delta", timeout=_TIMEOUT_SECONDS)
    answer.raise_for_status()
    delta = delta_from_text(answer.content)
    followed = Listing(view).with_changes(delta.changes)
    if followed.status_counts == delta.status_counts:
        return followed.by_key, delta.version
    apps = session.get(f"{url}/apps", timeout=_TIMEOUT_SECONDS)
    apps.raise_for_status()
    return {one.key: one for one in instances_from_text(apps.content)}, delta.version


def _is_registered_up(session: requests.Session, url: str, instance: Instance) -> bool:
    path = f"{instance.application}/{quote(instance.instance_id, safe='')}"
    answer = session.get(f"{url}/apps/{path}", timeout=_TIMEOUT_SECONDS)
    if answer.status_code == requests.codes.not_found:
        return False
    answer.raise_for_status()
    return instance_from_json(answer.json()["instance"]).status is Status.UP
