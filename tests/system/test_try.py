"""docs/start/try.md, typed as written: pods are called, rolled and scaled, and no call fails."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest
import yaml

from lab.netns import network_unavailable_reason, run_module_in_network
from lab.programs import SERVER_PROGRAM_NAMES, provide_programs
from lab.trial import ROOT, TRIAL_PAGE_PATH
from scripts.blocks import find_code_blocks
from tests.system.stacks import needs_kubectl

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(300), needs_kubectl]

TRY = ROOT / "deploy" / "try"


@pytest.fixture(scope="module")
def seen() -> list[str]:
    """Return the output of each block of the page's commands."""
    if reason := network_unavailable_reason():
        pytest.skip(reason)
    provide_programs(SERVER_PROGRAM_NAMES)
    found: list[str] = run_module_in_network("lab.trial")  # type: ignore[assignment]
    return found


def named(text: str) -> set[str]:
    """Return the pods that a line of the caller names."""
    return set(re.findall(r"\brating-\w+-\w+\b", text))


def test_nobody_is_found_before_the_syncer(seen: list[str]) -> None:
    """Before the syncer exists, the caller knows a name that nobody has registered."""
    assert seen[2] == "RATING: no instance in Eureka (0 calls, 0 failed)"


def test_each_pod_answers_after_the_syncer(seen: list[str]) -> None:
    """The caller reaches all three pods, and the syncer counts three."""
    assert len(named(seen[4].splitlines()[0])) == 3
    assert re.search(r"^rating +pod +RATING +True +3/3 ", seen[4], re.M)


def test_both_worlds_are_in_sync(seen: list[str]) -> None:
    """`eurekube status` names the syncer, and counts the same in Kubernetes and in Eureka."""
    assert re.search(r"^RATING +syncer eurekube-try/rating +3/3 +3/3 +synced$", seen[5], re.M)


def test_a_roll_and_a_scaling_lose_no_call(seen: list[str]) -> None:
    """Five other pods answer afterwards, and no call has failed."""
    last = seen[6].splitlines()[-1]
    assert len(named(last)) == 5
    assert not named(last) & named(seen[4])
    assert last.endswith(", 0 failed)")


def test_nothing_stays_in_eureka(seen: list[str]) -> None:
    """Deleting the syncer deregisters the pods, and no call fails meanwhile."""
    said = next(line for line in seen[7].splitlines() if line.startswith("RATING"))
    assert said.startswith("RATING: no instance in Eureka")
    assert said.endswith(", 0 failed)")


def containers() -> Iterable[dict[str, str]]:
    """Return every container of the manifests, the operator's included."""
    for file in (*TRY.glob("*.yaml"), *(ROOT / "deploy" / "kustomize" / "base").glob("*.yaml")):
        for item in yaml.safe_load_all(file.read_text()):
            template = (item.get("spec") or {}).get("template") or {}
            yield from (template.get("spec") or {}).get("containers") or ()


def test_one_image_is_enough() -> None:
    """The page says that only the operator's image must be built, and names it."""
    (image,) = {container["image"] for container in containers()}
    assert any(
        f"kind load docker-image {image} " in block.text for block in find_code_blocks(TRIAL_PAGE_PATH)
    )
