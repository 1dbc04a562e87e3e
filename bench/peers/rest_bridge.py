"""A bridge that sends one request for each instance, as the Eureka REST operations page describes it."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import requests

from eurekube_provider.core.model import Instance


def renew_each(url: str, instances: Iterable[Instance]) -> None:
    """One PUT each over one connection."""
    with requests.Session() as session:
        for instance in instances:
            _renew(session, url, instance)


def renew_each_in_threads(url: str, instances: Iterable[Instance], threads: int = 16) -> None:
    """One PUT each, from several threads with a pool of connections."""
    with requests.Session() as session, ThreadPoolExecutor(threads) as pool:
        session.mount(url, requests.adapters.HTTPAdapter(pool_maxsize=threads))
        list(pool.map(lambda instance: _renew(session, url, instance), instances))


def _renew(session: requests.Session, url: str, instance: Instance) -> None:
    path = f"/apps/{instance.application}/{quote(instance.instance_id, safe='')}"
    session.put(url + path, timeout=10).raise_for_status()
