"""The present content of a lab's server, as only tests may ask for it.

A server's lists are up to half a minute old, and it keeps each list that it was ever asked for. Its front
page is made again for each request, and names all instances; what is known of each is read by its id, past
the caches too.
"""

import html
import itertools
import json
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote, urlsplit

import requests
import urllib3

from eurekube_provider.core.model import Instance
from eurekube_provider.eureka.protocol.codec import (
    instance_from_json,
    instances_from_json,
    instances_from_text,
)
from lab.errors import LabError
from lab.eureka import EUREKA_PASSWORD, EUREKA_USER
from lab.waiting import wait_until

_HEADERS = urllib3.make_headers(basic_auth=f"{EUREKA_USER}:{EUREKA_PASSWORD}")
"""Credentials, which a server that asks for none ignores."""

_servers = urllib3.PoolManager(timeout=30, retries=urllib3.Retry(total=1, redirect=0, status=0))
_numbers = itertools.count(1)

LISTED_WITHIN_SECONDS = 240.0
"""For so long who waits for a list must wait.

What changes in the moment in which a server renders a list is not in it for three minutes.
"""

_HEADING = "Instances currently registered with Eureka"
_APPLICATION = re.compile(r"<td><b>(.*)</b></td>")
_LINKED = re.compile(r'<a href="[^"]*" target="_blank">(.*)</a>')

Key = tuple[str, str]


def listed_now(url: str, application: str = "") -> list[Instance]:
    """Return the server's instances, or those of one application, past its caches."""
    read = (_read(url, key) for key in held_now(url, application))
    return [one for one in read if one is not None]


def held_now(url: str, application: str = "") -> list[Key]:
    """Application and id of each, also of those whose leases lapsed and that were not evicted yet."""
    parts = urlsplit(url)
    page = _get(f"{parts.scheme}://{parts.netloc}/", "text/html")
    if page is None or _HEADING not in page:
        raise LabError(f"{url} shows no front page with instances")
    return [key for key in keys_on(page) if application.upper() in ("", key[0])]


def keys_on(page: str) -> Iterator[Key]:
    """The instances that a server's front page names: a line each, in the row of their application."""
    application = ""
    for line in page.partition(_HEADING)[2].partition("</table>")[0].splitlines():
        text = line.strip()
        if found := _APPLICATION.fullmatch(text):
            application = html.unescape(found[1])
        elif found := _LINKED.fullmatch(text):
            yield application, html.unescape(found[1])
        elif application and text and text != "," and not text.startswith("<"):
            yield application, html.unescape(text)


def wait_listed(url: str, instances: Iterable[Instance]) -> None:
    """Wait until the list that every client gets of a server shows these: half a minute with its defaults."""
    keys = {one.key for one in instances}

    def shows() -> bool:
        text = _get(f"{url}/apps", "application/json")
        return text is not None and keys <= {one.key for one in instances_from_text(text)}

    try:
        wait_until(shows, f"the list of {url}", LISTED_WITHIN_SECONDS)
    except LabError as error:
        held = {key: _read(url, key) is not None for key in keys}
        raise LabError(f"{error}; whether it holds what was waited for: {held}") from None


def listed_at_once(url: str, session: requests.Session) -> list[Instance]:
    """Return a server's content in one answer: for callers that list hundreds of instances many times a
    second.

    Only for a server with ``quick_view=True`` that ends with its test: the list is one for a region that
    nobody asked for before, and the server keeps each of them, for good where it has its read-only cache.
    """
    answer = session.get(
        f"{url}/apps",
        params={"regions": f"none-{next(_numbers)}"},
        headers={"Accept": "application/json"},
        timeout=30,
    )
    answer.raise_for_status()
    return instances_from_json(answer.json())


def _read(url: str, key: Key) -> Instance | None:
    """One instance; None where it is gone meanwhile."""
    text = _get(f"{url}/apps/{key[0]}/{quote(key[1], safe='')}", "application/json")
    return None if text is None else instance_from_json(json.loads(text)["instance"])


def _get(url: str, accept: str) -> str | None:
    answer = _servers.request("GET", url, headers={**_HEADERS, "Accept": accept})
    if answer.status == 404:
        return None
    if answer.status != 200:
        raise LabError(f"{url} answered {answer.status}: {answer.data[:200]!r}")
    return answer.data.decode()
