"""Random programs, drawn from the properties of both resources: after some edits Eureka is as after a fresh
start.

Each edit may lose an answer. No process is killed, because instances that a killed process has just
registered are in no state, and the next program may not name them. The last program then runs undisturbed,
twice; and once at an empty Eureka.
"""

from __future__ import annotations

import random
from typing import Any

from eurekube_provider.dev.eureka.cluster import EurekaCluster
from eurekube_provider.resources.arguments import RegistrationContentsArgsDict
from tests.explore.engine import Engine, Program
from tests.explore.explorer import command
from tests.explore.others import OWNER, metadata
from tests.explore.programs import URL, application, instance
from tests.explore.shells import PREFIX, Properties
from tests.explore.world import NO_ANSWERS, World, owned

_ANY: dict[str, tuple[Any, ...]] = {
    "port": (8080, 8081),
    "secure_port": (8443,),
    "metadata": ({"tier": "1"}, {"tier": "2", "team": "b"}),
    "zone": ("a", "b"),
    "status": ("UP", "DOWN", "OUT_OF_SERVICE"),
    "vip_address": ("other",),
    "renewal_interval_seconds": (10,),
    "duration_seconds": (120,),
    "home_page_url": ("http://10.0.0.1/",),
    "drain_seconds": (0, 30),
    "renewer": ("eurekube", "other"),
}
_OWN = {"instance_id": ("vm-1", "vm-2"), "host_name": ("10.0.0.1", "10.0.0.2")}

_BY_TYPE: dict[str, tuple[Any, ...]] = {
    "Mapping": ({"one": "1"}, {"one": "2", "other": "1"}),
    "bool": (True, False),
    "int": (1, 60),
    "str": ("one", "other"),
}


def described() -> dict[str, tuple[Any, ...]]:
    """Return possible values of the inputs that both resources describe, so that a new property is drawn
    as well.
    """
    found = dict(_ANY)
    for name, hint in RegistrationContentsArgsDict.__annotations__.items():
        if name.endswith("_url"):
            found.setdefault(name, ("http://10.0.0.1/", "http://10.0.0.1/other"))
        values = next(values for type_, values in _BY_TYPE.items() if f"[{type_}" in str(hint))
        found.setdefault(name, values)
    return found


_DESCRIBED = described()

_MOST_REQUESTS = 40
_LOSSES = tuple(fault for fault in NO_ANSWERS if fault.is_loss)


def program(draw: random.Random, any_: dict[str, tuple[Any, ...]]) -> Program:
    """Draw a program with up to two resources.

    :param any_: values that both may get.
    """
    made: dict[str, Properties] = {}
    if draw.random() < 0.8:
        made[draw.choice(("i", "parent/i"))] = instance(**_some(draw, {**any_, **_OWN}))
    if draw.random() < 0.6:
        keys = draw.sample("abc", draw.randint(1, 3))
        made["a"] = application(*sorted(keys), **_some(draw, any_))
    return made


def _some(draw: random.Random, properties: dict[str, tuple[Any, ...]]) -> Properties:
    names = draw.sample(sorted(properties), draw.randint(0, 3))
    return {name: draw.choice(properties[name]) for name in names}


def tried(seed: int, tool: type[Engine] = Engine, *, described: bool = False) -> str:
    """Run the sequence of a seed; return its violations, or nothing.

    :param described: True if every property that the resources describe is drawn, not only the kinds that are
        known to matter.
    """
    any_ = _DESCRIBED if described else _ANY
    draw = random.Random(seed)  # noqa: S311 - replayed by its seed
    programs = [program(draw, any_) for _ in range(draw.randint(2, 5))]
    world = World(EurekaCluster([URL]))
    with owned(world):
        engine = tool(world)
        said = []
        for each in programs[:-1]:
            world.faults = {len(world.trace) + draw.randrange(_MOST_REQUESTS): draw.choice(_LOSSES)}
            run = engine.up(each, refresh=draw.random() < 0.3)
            said.append(run.error or ("killed" if run.killed else ""))
            world.cluster.clock.advance(40_000)
        world.faults = {}
        last = programs[-1]
        first, second = engine.up(last, refresh=True), None
        world.cluster.clock.advance(40_000)
        if first.ended_well:
            second = engine.up(last)
    fresh = World(EurekaCluster([URL]))
    with owned(fresh):
        assert tool(fresh).up(last).ended_well, f"seed {seed}: {last} cannot be run at all"
    wrong = first.error
    if second is not None and second.steps:
        wrong = f"an up after a good one still changes: {second.steps}"
    if not wrong and _stands(world) != _stands(fresh):
        wrong = f"Eureka holds {_stands(world)}, and after a fresh start {_stands(fresh)}"
    if not wrong:
        return ""
    lines = [
        f"{each}{f'  <- {error}' if error else ''}" for each, error in zip(programs, [*said, ""], strict=True)
    ]
    return "\n".join(
        [
            wrong,
            f"replay: {replay(seed, tool, described=described)}",
            *lines,
            *world.trace,
        ]
    )


def replay(seed: int, tool: type[Engine] = Engine, *, described: bool) -> str:
    """Return the command that runs a sequence again."""
    return command(f"stacks.generated({seed}, {tool.__name__}, described={described})")


def _stands(world: World) -> dict[tuple[str, str], Any]:
    """Return our instances in Eureka, without times and incarnations."""
    found: dict[tuple[str, str], Any] = {}
    for lease in world.cluster.servers[URL].registry.all_leases():
        info = lease.holder
        marks = {key: value for key, value in metadata(info).items() if key != "eurekube.incarnation"}
        if str(marks.get(OWNER, "")).startswith(PREFIX):
            fields = {
                key: value for key, value in info.fields.items() if key not in ("metadata", "leaseInfo")
            }
            found[info.app, info.id] = (info.status, info.duration_s, marks, fields)
    return found
