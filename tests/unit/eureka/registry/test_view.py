"""What we believe is in the registry: lists suggest, and never overrule what was written meanwhile."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from eurekube_provider.core.identity import OWNER_KEY
from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.registry.view import View
from tests.unit import held, strategies
from tests.unit.strategies import OURS, THEIRS

RATING = Instance("rating", "a", "10.0.0.1", "10.0.0.1", Port(8080), metadata={"eurekube.owner": OURS})
ORDER = replace(RATING, application="order", instance_id="b")


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_first_list_is_believed() -> None:
    """What nobody knew better is news, and is believed as listed."""
    view = View()
    assert view.merge([RATING, ORDER]) == ([RATING, ORDER], [])
    assert view.get(RATING.key) == RATING
    assert view.merge([RATING, ORDER]) == ([], [])


def test_a_list_that_agrees_is_kept_instead() -> None:
    """What a list shows as it was written is held once, and still firm: a later contradiction is a doubt."""
    clock = Clock()
    view = View(clock)
    view.registered(RATING)
    clock.now += windows.UNLISTED
    listed = replace(RATING)
    assert view.merge([listed]) == ([], [])
    assert view.get(RATING.key) is listed
    assert view.merge([listed]) == ([], [])
    assert view.merge([]) == ([], [RATING.key])


def test_an_old_list_does_not_hide_a_write() -> None:
    """A list that lacks what was just registered changes nothing, and is no reason to look."""
    view = View()
    view.registered(RATING)
    assert view.merge([]) == ([], [])
    assert view.get(RATING.key) == RATING


def test_an_old_list_does_not_bring_back_what_was_removed() -> None:
    """A list that still has what was just removed does not make it stand there again."""
    view = View()
    view.registered(RATING)
    view.gone(RATING.key)
    assert view.merge([RATING]) == ([], [])
    assert view.get(RATING.key) is None


def test_an_old_list_does_not_undo_an_update() -> None:
    """A list with the contents from before an update is not believed."""
    view = View()
    newer = replace(RATING, ip_address="10.0.0.2")
    view.registered(newer)
    assert view.merge([RATING]) == ([], [])
    assert view.get(RATING.key) == newer


def test_a_list_that_goes_on_to_contradict_raises_a_doubt() -> None:
    """Once caches must have caught up, a list against our knowledge is a reason to look, not to believe."""
    clock = Clock()
    view = View(clock)
    view.registered(RATING)
    view.registered(ORDER)
    clock.now += windows.UNLISTED
    assert view.merge([replace(RATING, ip_address="10.0.0.2")]) == ([], [RATING.key, ORDER.key])
    assert view.get(RATING.key) == RATING
    assert view.get(ORDER.key) == ORDER


def test_what_may_be_others_by_now_is_believed_as_listed() -> None:
    """Another replica wrote meanwhile: neither what we wrote nor what we read counts against a list."""
    view = View()
    for one in (RATING, ORDER):
        view.registered(one)
    view.doubt()
    moved = replace(ORDER, ip_address="10.0.0.9")
    assert view.merge([moved]) == ([moved], [])
    assert (view.get(RATING.key), view.get(ORDER.key)) == (None, moved)


def test_a_settled_doubt_is_knowledge() -> None:
    """What an uncached read found after a doubt is firm, and lists may not overrule it for a while."""
    clock = Clock()
    view = View(clock)
    view.registered(RATING)
    clock.now += windows.UNLISTED
    assert view.merge([]) == ([], [RATING.key])
    view.gone(RATING.key)
    assert view.merge([RATING]) == ([], [])


def test_a_change_of_owner_or_status_is_news() -> None:
    """What is only known from lists follows them, and what changed is said."""
    view = View()
    view.merge([RATING, ORDER])
    taken = replace(RATING, metadata={"eurekube.owner": THEIRS})
    down = replace(ORDER, status=Status.DOWN)
    assert view.merge([taken, down]) == ([taken, down], [])
    assert view.owned(OURS) == [down]
    assert view.owned(THEIRS) == [taken]
    assert view.owners() == {OURS, THEIRS}


def test_what_is_only_listed_goes_with_its_list() -> None:
    """An instance that nobody wrote or read, and that is listed no more, is forgotten."""
    view = View()
    view.merge([RATING])
    assert view.merge([], is_complete=False) == ([], [])
    assert view.owned(OURS) == [RATING]
    assert view.merge([]) == ([], [])
    assert len(view) == 0
    assert view.owners() == set()


def test_applications_are_found_in_any_case() -> None:
    """An application's instances are found by its name as people write it."""
    view = View()
    view.merge([RATING, ORDER])
    assert view.application("Rating") == [RATING]
    assert view.application("none") == []


_events = st.lists(
    st.tuples(st.sampled_from(["registered", "gone", "list", "wait"]), strategies.registries()), max_size=8
)


@given(_events)
def test_indexes_agree_with_what_is_held(events: list[tuple[str, list[Instance]]]) -> None:
    """Whatever happens in whatever order, owners and applications lead to exactly what is held."""
    clock = Clock()
    view = View(clock)
    for kind, instances in events:
        if kind == "list":
            view.merge(instances)
        elif kind == "wait":
            clock.now += windows.UNLISTED
        else:
            for instance in instances:
                if kind == "registered":
                    view.registered(instance)
                else:
                    view.gone(instance.key)
    keys = {(app, f"pod-{number}") for app in ("RATING", "ORDER") for number in range(1, 5)}
    held = {key: found for key in keys if (found := view.get(key)) is not None}
    by_application = [one for app in ("RATING", "ORDER") for one in view.application(app)]
    assert {one.key: one for one in by_application} == held
    assert len(by_application) == len(held) == len(view)
    assert view.owners() == {one.owner for one in held.values() if one.owner}
    for owner in view.owners():
        assert {one.key for one in view.owned(owner)} == {k for k, one in held.items() if one.owner == owner}
        assert view.up(owner=owner) == sum(one.status is Status.UP for one in view.owned(owner))
    of_syncers = [one for one in held.values() if (one.owner or "").startswith("cluster/eks/")]
    assert view.up(cluster="eks") == sum(one.status is Status.UP for one in of_syncers)


def test_what_was_known_lately_is_not_new() -> None:
    """Only an id that stands in no list, and was neither written nor removed of late, is new."""
    clock = Clock()
    view = View(clock)
    assert view.is_new(RATING.key)
    view.registered(RATING)
    assert not view.is_new(RATING.key)
    view.gone(RATING.key)
    assert not view.is_new(RATING.key)
    clock.now += windows.UNLISTED
    view.merge([])
    assert view.is_new(RATING.key)
    view.merge([RATING])
    assert not view.is_new(RATING.key)


def test_owners_by_the_names_that_callers_use() -> None:
    """As instances come, change their VIP address or owner, and go."""
    view = View()

    def put(instance_id: str, vip: str, owner: str) -> None:
        metadata = {OWNER_KEY: owner}
        view.registered(
            Instance("RATING", instance_id, "h", "i", Port(1), vip_address=vip, metadata=metadata)
        )

    put("a", "stars", "one")
    put("b", "stars,Best", "one")
    put("b", "stars,Best", "one")
    assert (view.owners_called("RATING"), view.owners_called("best")) == (["one"], ["one"])
    put("b", "other", "one")
    assert (view.owners_called("best"), view.owners_called("stars")) == ([], ["one"])
    put("a", "stars", "two")
    assert (view.owners_called("stars"), sorted(view.owners_called("rating"))) == (["two"], ["one", "two"])
    for key in ("a", "b"):
        view.gone(("RATING", key))
    assert {"rating", "stars", "best", "other"}.isdisjoint(text for text, _ in held.texts(view))


def test_removals_that_no_list_follows_are_forgotten() -> None:
    """An Eureka may take what is written and give no list."""
    now = 0.0
    view = View(lambda: now)
    for number in range(20_000):
        now += 1.0
        view.gone(("RATING", f"pod-{number}"))
    assert sum(text.startswith("pod-") for text, _ in held.texts(view)) < 3000
