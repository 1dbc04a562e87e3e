"""Single faults of real Eureka servers behind faulty proxies: no instance of ours, of others, or taken out by
a person is lost.

Each fault meets two operators at once, one that sends single requests and one that sends batches, while they
renew and while the desired instances change.
"""

from __future__ import annotations

import base64
import shutil
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from eurekube_provider.core.errors import RegistryDenied, RegistryUnreachable
from eurekube_provider.core.identity import OWNER_KEY
from eurekube_provider.core.model import EurekaLease, Instance, Port, Status, same_contents_but_status
from eurekube_provider.core.registry import reading_error
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.connection import BatchMode, Connection
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.eureka.writer import Writer
from lab.eureka import EUREKA_PASSWORD, EUREKA_USER
from lab.peering import SERVER_COUNT, PeeredEurekas
from lab.ports import HOST
from lab.proxy import Proxy
from lab.waiting import wait_until
from tests.faults.certificates import Certificate, make_certificate
from tests.faults.expected import Key
from tests.faults.lease_witness import LeaseWitness
from tests.faults.local_operator import RENEWAL_INTERVAL_SECONDS, Clocks, LocalOperator, address
from tests.logged_lines import everything_logged

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.faults]

FAULT_SECONDS = 7.0
LEVEL_SECONDS = 40.0
THEIRS = "cluster/other/shop/rating"
LEASE = EurekaLease(duration_seconds=3)
"""A lease that lapses 6 s after the last renewal, so that a fault of 7 s without renewals would show.

The promised interval stays at 30 s, for which servers try to forward a renewal.
"""

LONG = EurekaLease(duration_seconds=600)
CONFLICT, FOREIGN, OUT_OF_SERVICE = 0, 9000, 10
"""Numbers of pods: one whose id another owner has, one of another owner, and one that a person takes out
of service.
"""


def connection(urls: Iterable[str]) -> Connection:
    """Return the connection to these servers."""
    return Connection(
        tuple(urls), EUREKA_USER, EUREKA_PASSWORD, connect_timeout_seconds=0.5, read_timeout_seconds=1.0
    )


def foreign(operator: LocalOperator, pod: int) -> Instance:
    """Return an instance of another owner under the id that the operator would give to this pod."""
    application, instance_id = operator.key(pod)
    return Instance(
        application,
        instance_id,
        address(pod),
        address(pod),
        Port(8080),
        lease=LONG,
        metadata={OWNER_KEY: THEIRS},
    )


def pause(seconds: float) -> None:
    """Wait while a fault lasts: there is no condition to wait for."""
    time.sleep(seconds)


class Scene:
    """Two operators with their registrations, instances of others, and instances that a person took out of
    service.
    """

    def __init__(
        self, cluster: PeeredEurekas, operators: list[LocalOperator], witness: LeaseWitness, log: list[str]
    ) -> None:
        self.cluster = cluster
        self.operators = operators
        self.witness = witness
        self.log = log
        self._foreign: set[Key] = set()

    def begin(self, lease: EurekaLease = LEASE) -> None:
        """Register instances of others and of the operators, and set OUT_OF_SERVICE over one of each
        operator.
        """
        anybody = Peers(connection(server.url for server in self.cluster.servers))
        try:
            for operator in self.operators:
                for planted in (foreign(operator, CONFLICT), foreign(operator, FOREIGN)):
                    Writer(anybody).register(planted)
                    self.witness.expect_untouched(planted)
                    self._foreign.add(planted.key)
            for operator in self.operators:
                operator.want(range(24), lease)
            self.wait_level()
            for operator in self.operators:
                chosen = operator.desired[OUT_OF_SERVICE]
                assert Writer(anybody).set_status(chosen, Status.OUT_OF_SERVICE)
            wait_until(self.is_out_of_service, "the person's wish on every server", LEVEL_SECONDS)
            for operator in self.operators:
                self.witness.expect(self.expected(operator))
                self.witness.expect_out_of_service(operator.desired[OUT_OF_SERVICE])
        finally:
            anybody.close()

    def change(self) -> None:
        """Have each operator desire other contents, four more instances and four fewer."""
        for operator in self.operators:
            gone = [one for one in operator.desired if one.key in {operator.key(pod) for pod in range(1, 5)}]
            self.witness.expect([], gone=gone)
            operator.want([CONFLICT, *range(5, 28)], revision="2")
            self.witness.expect(self.expected(operator))

    def expected(self, operator: LocalOperator) -> list[Instance]:
        """Return the instances that an operator must hold: the desired ones, except ids that others had
        before.
        """
        return [one for one in operator.desired if one.key not in self._foreign]

    def wait_level(self) -> None:
        """Wait until every server holds exactly the desired instances and those of others."""
        try:
            wait_until(lambda: not self._differences(), "the desired set on every server", LEVEL_SECONDS)
        except Exception as error:
            error.add_note("\n".join([*self._differences(), "the log:", *self.log]))
            raise

    def settle(self) -> None:
        """End all faults, wait until every server agrees, and fail if the witness has complaints."""
        self.cluster.heal()
        self.wait_level()
        self.witness.end_excuses()
        pause(2 * RENEWAL_INTERVAL_SECONDS)  # what somebody brings back by a renewal under way comes now
        self.wait_level()
        wait_until(self.is_out_of_service, "the person's wish on every server", LEVEL_SECONDS)
        self.witness.stop()
        assert self.witness.complaints == [], "\n".join(self.log)
        text = "\n".join(self.log)
        for secret in (
            EUREKA_PASSWORD,
            base64.b64encode(f"{EUREKA_USER}:{EUREKA_PASSWORD}".encode()).decode(),
        ):
            assert secret not in text

    def said(self, *words: str) -> bool:
        """Return whether one line of the log has all these words."""
        return any(all(word in line for word in words) for line in self.log)

    def _differences(self) -> list[str]:
        found: list[str] = []
        for number in range(SERVER_COUNT):
            held = self.cluster.list_instances(number)
            name = self.cluster.servers[number].name
            for operator in self.operators:
                wanted = {one.key: one for one in self.expected(operator)}
                there = {key for key in held if key[0] == operator.app.upper()} - self._foreign
                found += [f"{name} lacks {key[1]}" for key in wanted.keys() - there]
                found += [f"{name} still has {key[1]}" for key in there - wanted.keys()]
                found += [
                    f"{name} has other contents of {key[1]}"
                    for key in there & wanted.keys()
                    if not same_contents_but_status(wanted[key], held[key])
                ]
        return found

    def is_out_of_service(self) -> bool:
        """Return whether every server shows OUT_OF_SERVICE where the person set it."""
        keys = [operator.key(OUT_OF_SERVICE) for operator in self.operators]
        return all(
            found is not None and found.status is found.overridden_status is Status.OUT_OF_SERVICE
            for number in range(SERVER_COUNT)
            for held in [self.cluster.list_instances(number)]
            for found in map(held.get, keys)
        )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PeeredEurekas]:
    """Start three servers, which all faults share."""
    with PeeredEurekas(tmp_path_factory.mktemp("servers")) as running:
        yield running


@pytest.fixture
def scene(cluster: PeeredEurekas, unique_name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """Return a scene with both operators at work and no fault."""
    # Come back to a server soon after a fault, when it may know nothing yet.
    monkeypatch.setattr(windows, "AVOID_SERVER_SECONDS", 2.0)
    cluster.heal()
    with (
        everything_logged() as log,
        LeaseWitness(cluster) as witness,
        LocalOperator(connection(cluster.urls), f"{unique_name}-rest", BatchMode.REST) as rest,
        LocalOperator(connection(cluster.urls), f"{unique_name}-batch", BatchMode.BATCH) as batch,
    ):
        result = Scene(cluster, [rest, batch], witness, log)
        yield result
        cluster.heal()
        for operator in result.operators:
            operator.want([])
        for operator in result.operators:
            wait_until(operator.has_nothing, "the end of the registrations", LEVEL_SECONDS)


FAULTS: dict[str, tuple[Callable[[Proxy], None], str]] = {
    "slow": (lambda front: front.delay(0.3), ""),
    "answers 500": (lambda front: front.answer(500), "answered 500"),
    "answers 503": (lambda front: front.answer(503), "answered 503"),
    "cuts connections": (lambda front: front.cut(), "Connection"),
    "never answers": (lambda front: front.hang(), "did not answer within"),
    "refuses our credentials": (lambda front: front.answer(401), "wants other credentials"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_server_that_clients_cannot_use(scene: Scene, fault: str) -> None:
    """The operators work on with the other servers, and afterwards the faulty server holds the same as
    they do.
    """
    scene.begin()
    disturb, words = FAULTS[fault]
    for operator in scene.operators:
        if operator.mode is BatchMode.BATCH and fault != "slow":
            scene.witness.excuse(operator.app, 0)  # nobody forwards a batch to it
    disturb(scene.cluster.fronts[0])
    scene.change()
    pause(FAULT_SECONDS)
    scene.settle()
    if words:
        url = scene.cluster.urls[0]
        assert scene.said(words, url), "\n".join(scene.log)
        wait_until(lambda: scene.said("answers again", url), "word of its return", LEVEL_SECONDS)


def test_a_server_that_is_killed_and_comes_back_empty(scene: Scene) -> None:
    """The killed server gets all instances back, with a person's OUT_OF_SERVICE, and the log says that it
    was restarted.
    """
    scene.begin()
    scene.cluster.servers[0].kill()
    scene.change()
    pause(FAULT_SECONDS)
    scene.settle()
    url = scene.cluster.urls[0]
    assert scene.said("does not answer", "no connection to", url)
    assert scene.said("was restarted", url)
    assert scene.said("copied missing instances", url)


def test_a_server_that_comes_back_empty_at_once(scene: Scene) -> None:
    """Even if nobody noticed its absence, the server gets the lost instances back, while changes go on."""
    scene.begin()
    scene.cluster.servers[0].restart()
    scene.change()
    scene.settle()
    assert scene.said("was restarted", scene.cluster.urls[0])


def test_a_server_that_comes_back_with_a_copy(scene: Scene) -> None:
    """Instances that the server copied from a peer are renewed like the others."""
    scene.begin()
    scene.cluster.servers[0].kill()
    scene.change()
    scene.cluster.servers[0].start_with_registry_copy()
    scene.settle()
    assert scene.said("was restarted", scene.cluster.urls[0])


def test_a_server_split_from_the_others(scene: Scene) -> None:
    """Clients reach all servers, but one server and the others do not reach each other; afterwards all
    hold the same.
    """
    scene.begin()
    scene.cluster.isolate_server(0)
    scene.change()
    pause(FAULT_SECONDS)
    scene.settle()


def test_removals_that_a_server_missed(scene: Scene) -> None:
    """A server that was silent loses removed instances afterwards, unless they were registered again
    meanwhile.
    """
    scene.begin(LONG)
    scene.cluster.fronts[0].hang()
    scene.cluster.isolate_server(0)  # nor do the others forward anything
    for operator in scene.operators:
        before = operator.desired
        scene.witness.expect([], gone=before)
        operator.want([])
        wait_until(operator.has_nothing, "the removal", LEVEL_SECONDS)
        operator.want([CONFLICT, *range(OUT_OF_SERVICE + 1, 24)])
    scene.witness.stop()
    scene.cluster.heal()
    scene.wait_level()
    words = ("removed instances that a Eureka server had kept", scene.cluster.urls[0])
    wait_until(lambda: scene.said(*words), "word of it", LEVEL_SECONDS)


def test_a_removal_that_comes_after_the_registration(cluster: PeeredEurekas, unique_name: str) -> None:
    """A frozen server carries out an old removal when it thaws, and forwards it: the operator restores the
    instance long before its next renewal.
    """
    lease, turns_seconds = EurekaLease(120, 600), 120.0  # the first after 60 s
    cluster.heal()
    urls = [server.url for server in cluster.servers]
    way = connection(urls)
    with LocalOperator(way, unique_name, BatchMode.REST, interval_seconds=turns_seconds) as operator:
        keys = {operator.key(pod) for pod in (0, 1)}
        key = operator.key(0)

        def is_level() -> bool:
            return all(keys <= cluster.list_instances(at).keys() for at in range(SERVER_COUNT))

        operator.want([0, 1], lease)
        wait_until(is_level, "the registrations", LEVEL_SECONDS)
        cluster.servers[2].pause()
        operator.want([1])
        wait_until(
            lambda: not any(key in cluster.list_instances(at) for at in (0, 1)), "the removal", LEVEL_SECONDS
        )
        pause(1.0)  # the two have updated each other
        operator.want([0, 1])
        wait_until(lambda: all(key in cluster.list_instances(at) for at in (0, 1)), "it again", LEVEL_SECONDS)
        cluster.servers[2].resume()
        pause(5.0)  # the one that was frozen has updated the others
        wait_until(is_level, "it on every server", LEVEL_SECONDS)
        operator.want([])
        wait_until(operator.has_nothing, "the removals", LEVEL_SECONDS)


def test_credentials_that_no_server_accepts_for_a_while(scene: Scene) -> None:
    """No instance is lost while leases last, and the log names the credentials."""
    scene.begin(EurekaLease(duration_seconds=15))
    said_before = len(scene.log)
    for front in scene.cluster.fronts:
        front.answer(401)
    scene.change()
    for operator in scene.operators:

        def is_refused(operator: LocalOperator = operator) -> bool:
            return isinstance(reading_error(operator.registry.condition()), RegistryDenied) and scene.said(
                "failed to reconcile a syncer", f"shop/{operator.app}", "wants other credentials"
            )

        wait_until(is_refused, "the refusal", 10)
    lines = [line for line in scene.log[said_before:] if "failed to reconcile a syncer" in line]
    assert [line for line in lines if "wants other credentials" not in line] == []
    scene.settle()
    assert scene.said("failed to read Eureka, retrying", "check eurekube:user and eurekube:password")
    assert scene.said("Eureka answers again")


def test_all_servers_come_back_empty(scene: Scene) -> None:
    """All our instances are registered again, with a person's OUT_OF_SERVICE; instances of others cannot
    be known.
    """
    scene.begin(LONG)
    for operator in scene.operators:
        operator.registry.start_leading(
            0
        )  # and so reads by instance: a list may stay as old as three minutes
        operator.registry.refresh([operator.desired[OUT_OF_SERVICE].key], include_known=True)
        assert any(one.is_overridden for one in operator.known)
    for server in scene.cluster.servers:
        server.kill()
    scene.cluster.heal()
    scene.wait_level()
    wait_until(scene.is_out_of_service, "the person's wish on every server", LEVEL_SECONDS)
    assert scene.said("Eureka answers again")


@pytest.mark.parametrize("mode", [BatchMode.REST, BatchMode.BATCH], ids=str)
def test_clients_with_clocks_ten_minutes_apart(
    cluster: PeeredEurekas, unique_name: str, mode: BatchMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two operators that change the same instances in turn have each update stored on every server, while
    both renew.
    """
    clocks = Clocks(monkeypatch)
    with ExitStack() as ends:
        clocks.set_ahead(600)
        early = ends.enter_context(LocalOperator(connection(cluster.urls), unique_name, mode))
        clocks.set_ahead(0)
        late = ends.enter_context(LocalOperator(connection(cluster.urls), unique_name, mode))

        def held() -> list[Instance]:
            listed = [
                one for number in range(SERVER_COUNT) for one in cluster.list_instances(number).values()
            ]
            return [one for one in listed if one.owner == early.owner]

        def stands(revision: str) -> bool:
            return [one.metadata["revision"] for one in held()] == [revision] * 25 * SERVER_COUNT

        for number in range(5):
            mine, other = (early, late) if number % 2 == 0 else (late, early)
            other.pause()
            mine.want(range(25), LONG, revision=str(number))
            mine.lead()
            other.want(range(25), LONG, revision=str(number))
            wait_until(lambda: stands(str(number)), f"update {number} on every server", LEVEL_SECONDS)  # noqa: B023
            pause(2 * RENEWAL_INTERVAL_SECONDS)  # both have renewed
            assert stands(str(number))
            # Who is behind goes on from what stands there.
            assert min(one.written_at_ms for one in held()) > (time.time() + 500) * 1000
        late.pause()
        early.want([])
        wait_until(early.has_nothing, "the removal", LEVEL_SECONDS)


@pytest.mark.parametrize("mode", [BatchMode.REST, BatchMode.BATCH], ids=str)
def test_a_thousand_come_and_go(cluster: PeeredEurekas, unique_name: str, mode: BatchMode) -> None:
    """Servers hold none of a thousand instances after their removal, even if they were renewed meanwhile
    or a server restarted.
    """
    urls = [server.url for server in cluster.servers]
    first = cluster.servers[0]
    with (
        everything_logged() as log,
        LocalOperator(connection(urls), unique_name, mode, interval_seconds=5.0) as operator,
    ):

        def left() -> list[str]:
            return [
                f"{cluster.servers[number].name}: {key[1]}"
                for number in range(SERVER_COUNT)
                for key in cluster.list_instances(number)
                if key[0] == operator.app.upper()
            ]

        def wait_renewed(count: int) -> None:
            wait_until(lambda: operator.renewed == count, f"{count} to be renewed", LEVEL_SECONDS)

        def wait_none_left() -> None:
            wait_until(operator.has_nothing, "the removals", LEVEL_SECONDS)
            looks: deque[list[str]] = deque(maxlen=20)

            def is_over() -> bool:
                # A server that was away may be given back what others still had to forward: that is swept.
                looks.append(left())
                return len(looks) == looks.maxlen and not any(looks)

            try:
                wait_until(is_over, "the last removal on every server", 2 * LEVEL_SECONDS)
            except Exception as error:
                error.add_note("\n".join([*looks[-1], "the log:", *log]))
                raise

        operator.want(range(1000), LONG)
        wait_renewed(1000)
        operator.want([])
        wait_none_left()

        operator.want(range(400), LONG)
        wait_until(lambda: operator.renewed > 100, "the first registrations", LEVEL_SECONDS)
        first.kill()
        first.launch()
        wait_renewed(400)
        operator.want([])
        wait_until(lambda: operator.renewed < 400, "the first removals", LEVEL_SECONDS)
        first.wait_until_ready()
        first.restart()
        wait_none_left()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Certificate]:
    """Make a valid server certificate, an expired one, and a client's certificate."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificates, and is not installed")
    directory = tmp_path_factory.mktemp("certificates")
    return {
        "server": make_certificate(directory, "server"),
        "expired": make_certificate(directory, "expired", is_expired=True),
        "client": make_certificate(directory, "client"),
    }


def tls(shown: Certificate, clients: Certificate | None = None) -> ssl.SSLContext:
    """Return the TLS settings of a server that shows this certificate and, if ``clients`` is given, asks
    clients for theirs.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(shown.certificate, shown.key)
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(clients.certificate)
    return context


def test_an_expired_certificate(
    cluster: PeeredEurekas, unique_name: str, certificates: dict[str, Certificate]
) -> None:
    """The operator works on with the other servers, and the log names the expired certificate; a new one
    ends the fault.
    """
    old, new = certificates["expired"], certificates["server"]
    with (
        everything_logged() as log,
        Proxy(cluster.servers[0].port, tls=tls(old)) as front,
        LocalOperator(secure(cluster, front, old), unique_name, BatchMode.REST) as rest,
    ):
        rest.want(range(3), LEASE)
        wait_until(lambda: rest.renewed == 3, "the registrations", LEVEL_SECONDS)
        with pytest.raises(
            RegistryUnreachable, match=r"certificate has expired.*check the CA file"
        ) as caught:
            rest.peers.peers[0].read_status()
        assert caught.value.url == f"https://{HOST}:{front.port}/eureka"
        rest.want([])
        wait_until(rest.has_nothing, "the removals", LEVEL_SECONDS)
    assert any("certificate has expired" in line and caught.value.url in line for line in log), "\n".join(log)
    with Proxy(cluster.servers[0].port, port=front.port, tls=tls(new)) as front:
        peer = Peer(caught.value.url, secure(cluster, front, new))
        assert peer.read_status().started_timestamp_ms is not None
        peer.close()


def test_a_server_that_asks_for_a_client_certificate(
    cluster: PeeredEurekas, certificates: dict[str, Certificate]
) -> None:
    """The server accepts our client certificate; without it, or with another one, the error speaks of
    certificates.
    """
    ours, shown = certificates["client"], certificates["server"]
    with Proxy(cluster.servers[0].port, tls=tls(shown, clients=ours)) as front:
        way = secure(cluster, front, shown)
        for files in (ours, shown, None):
            peer = Peer(
                way.service_urls[0],
                replace(
                    way,
                    client_certificate=files.certificate if files else None,
                    client_key=files.key if files else None,
                ),
            )
            if files is ours:
                assert peer.list_instances() is not None
            else:
                with pytest.raises(RegistryUnreachable, match=r"TLS.*client certificate"):
                    peer.list_instances()
            peer.close()


def secure(cluster: PeeredEurekas, front: Proxy, trusted: Certificate) -> Connection:
    """Return a connection whose first server is behind TLS."""
    urls = [f"https://{HOST}:{front.port}/eureka", *cluster.urls[1:]]
    return replace(connection(urls), ca_file=trusted.certificate)
