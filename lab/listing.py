"""Uncached reads of a lab's Eureka server, by ways that only tests may use.

A server's lists are up to half a minute old, and it keeps each list that it was ever asked for. Its front
page is made anew for each request, and names all instances; the details of each are read by its id, past
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

_AUTH_HEADERS = urllib3.make_headers(basic_auth=f"{EUREKA_USER}:{EUREKA_PASSWORD}")
"""Headers with credentials, which a server without authentication ignores."""

_http_pool = urllib3.PoolManager(timeout=30, retries=urllib3.Retry(total=1, redirect=0, status=0))
_region_numbers = itertools.count(1)

LONGEST_LIST_DELAY_SECONDS = 240.0
"""Longest time in seconds that a change may take to appear in a server's list.

A change at the moment in which a server renders a list appears only three minutes later.
"""

_PAGE_HEADING = "Instances currently registered with Eureka"
_APPLICATION_CELL_PATTERN = re.compile(r"<td><b>(.*)</b></td>")
_INSTANCE_LINK_PATTERN = re.compile(r'<a href="[^"]*" target="_blank">(.*)</a>')

Key = tuple[str, str]


def list_uncached(url: str, application: str = "") -> list[Instance]:
    """Return the instances that a server holds, or those of one application, past its caches."""
    read = (_read_instance(url, key) for key in list_keys_uncached(url, application))
    return [one for one in read if one is not None]


def list_keys_uncached(url: str, application: str = "") -> list[Key]:
    """Return application and id of each instance, including lapsed ones that were not evicted yet."""
    parts = urlsplit(url)
    page = _get(f"{parts.scheme}://{parts.netloc}/", "text/html")
    if page is None or _PAGE_HEADING not in page:
        raise LabError(f"{url} shows no front page with instances")
    return [key for key in parse_instance_keys(page) if application.upper() in ("", key[0])]


def parse_instance_keys(page: str) -> Iterator[Key]:
    """Yield the instances that a server's front page names: a line each, in the row of their application."""
    application = ""
    for line in page.partition(_PAGE_HEADING)[2].partition("</table>")[0].splitlines():
        text = line.strip()
        if found := _APPLICATION_CELL_PATTERN.fullmatch(text):
            application = html.unescape(found[1])
        elif found := _INSTANCE_LINK_PATTERN.fullmatch(text):
            yield application, html.unescape(found[1])
        elif application and text and text != "," and not text.startswith("<"):
            yield application, html.unescape(text)


def wait_until_listed(url: str, instances: Iterable[Instance]) -> None:
    """Wait until a server's cached list, which every client gets, shows these instances: half a minute
    with its defaults.
    """
    keys = {one.key for one in instances}

    def are_all_listed() -> bool:
        text = _get(f"{url}/apps", "application/json")
        return text is not None and keys <= {one.key for one in instances_from_text(text)}

    try:
        wait_until(are_all_listed, f"the list of {url}", LONGEST_LIST_DELAY_SECONDS)
    except LabError as error:
        held = {key: _read_instance(url, key) is not None for key in keys}
        raise LabError(f"{error}; whether it holds what was waited for: {held}") from None


def list_in_one_request(url: str, session: requests.Session) -> list[Instance]:
    """Return a server's instances in one answer: for callers that list hundreds of instances many times a
    second.

    Only for a server with ``uncached_lists=True`` that ends with its test: each call lists a new made-up
    region, and the server keeps each of these lists, for good where it has its read-only cache.
    """
    answer = session.get(
        f"{url}/apps",
        params={"regions": f"none-{next(_region_numbers)}"},
        headers={"Accept": "application/json"},
        timeout=30,
    )
    answer.raise_for_status()
    return instances_from_json(answer.json())


def _read_instance(url: str, key: Key) -> Instance | None:
    """Return one instance; None if the server does not hold it any more."""
    text = _get(f"{url}/apps/{key[0]}/{quote(key[1], safe='')}", "application/json")
    return None if text is None else instance_from_json(json.loads(text)["instance"])


def _get(url: str, accept: str) -> str | None:
    answer = _http_pool.request("GET", url, headers={**_AUTH_HEADERS, "Accept": accept})
    if answer.status == 404:
        return None
    if answer.status != 200:
        raise LabError(f"{url} answered {answer.status}: {answer.data[:200]!r}")
    return answer.data.decode()
