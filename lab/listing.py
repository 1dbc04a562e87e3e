"""What a server of the lab holds at this moment, as only tests may ask.

A list for a region that nobody asked for before is made for the request. The server keeps it for good, so
that nothing but a test, on servers that end with it, may do so.
"""

import itertools

import requests

from eurekube_provider.core.model import Instance
from eurekube_provider.eureka.codec import instances_from_json
from lab.eureka import EUREKA_PASSWORD, EUREKA_USER

_numbers = itertools.count(1)


def listed_now(url: str, session: requests.Session | None = None, application: str = "") -> list[Instance]:
    """What the server at this service URL holds, or what it holds of one application, past its caches."""
    get = session.get if session is not None else _get
    answer = get(
        f"{url}/apps",
        params={"regions": f"none-{next(_numbers)}"},
        headers={"Accept": "application/json"},
        timeout=30,
    )
    answer.raise_for_status()
    found = instances_from_json(answer.json())[0]
    return [one for one in found if application.upper() in ("", one.application)]


def _get(url: str, **arguments: object) -> requests.Response:
    with requests.Session() as session:
        session.trust_env = False
        session.auth = (EUREKA_USER, EUREKA_PASSWORD)  # which a server that asks for none does not mind
        return session.get(url, **arguments)  # type: ignore[arg-type]
