"""Holders of a stack's locks: a dead process of ours, or another one whose lock must stay."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from eurekube_provider.automation.locks import (
    LockHolder,
    ProcessRecords,
    StackBusy,
    is_running,
    parse_holders,
    remove_lock,
)
from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.stack_identity import stack_identity
from lab.workloads import wait_for

REFUSAL = """
 code: 255
 stderr: error: the stack is currently locked by 2 lock(s). Either wait for the other process(es) to \
end or delete the lock file with `pulumi cancel`.
  file:///srv/state/.pulumi/locks/organization/shop/dev/0ba90a3d.json: created by ci@builder-1 (pid 17) at \
2026-01-02T03:04:05Z
  file:///srv/state/.pulumi/locks/organization/shop/dev/1cb90a3d.json: created by d.o@e@laptop (pid 4242) at \
2026-01-02T03:04:06+01:00
"""


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """Yield a process that waits to be killed."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as running:
        yield running
        running.kill()


@pytest.fixture
def records(tmp_path: Path) -> ProcessRecords:
    """Return the process records of one stack."""
    return ProcessRecords(tmp_path / "runs", f"{tmp_path}/dev")


def lock(pid: int, host: str | None = None, since: datetime | None = None) -> LockHolder:
    """Return the lock of a process, taken now unless a time is given."""
    return LockHolder("me", host or socket.gethostname(), pid, since or datetime.now(UTC))


def test_a_refusal_names_its_holders() -> None:
    """Holders are read from Pulumi's refusal with user, host, process and time."""
    first, second = parse_holders(REFUSAL)
    assert first == LockHolder("ci", "builder-1", 17, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    assert (second.user, second.host, second.pid) == ("d.o@e", "laptop", 4242)
    assert str(first) == "ci@builder-1 (process 17) since 2026-01-02T03:04:05+00:00"
    assert parse_holders("[409] Conflict: Another update is currently in progress.") == ()


def test_only_a_dead_process_of_ours_left_its_lock(
    records: ProcessRecords, process: subprocess.Popen[bytes]
) -> None:
    """Only a lock of a recorded process that is dead counts as left: not of a running, foreign or earlier
    process.
    """
    records.add(process.pid, datetime.now(UTC))
    ours = lock(process.pid)
    assert not records.were_locks_left_by_dead_runs((ours,))
    process.kill()
    # Nobody has waited for it yet: it is a zombie, as under a container's first process.
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert records.were_locks_left_by_dead_runs((ours,))
    process.wait()
    assert records.were_locks_left_by_dead_runs((ours,))
    assert not records.were_locks_left_by_dead_runs(())
    assert not records.were_locks_left_by_dead_runs((ours, lock(1)))
    assert not records.were_locks_left_by_dead_runs((lock(process.pid, host="another"),))
    assert not records.were_locks_left_by_dead_runs(
        (lock(process.pid, since=datetime.now(UTC) - timedelta(hours=1)),)
    )


def test_a_number_that_came_round_again_is_another_process(
    records: ProcessRecords, process: subprocess.Popen[bytes]
) -> None:
    """When a process id is used again, the new process, younger than the lock, does not hold the lock."""
    earlier = datetime.now(UTC) - timedelta(hours=1)
    written = records.add(process.pid, earlier)
    text = written.read_text()
    assert '"birth": ""' not in text
    written.write_text(text.replace('"birth": "', '"birth": "9'))
    assert records.were_locks_left_by_dead_runs((lock(process.pid, since=earlier + timedelta(minutes=5)),))
    assert not records.were_locks_left_by_dead_runs((lock(process.pid),))


@pytest.mark.parametrize("is_named_as_before", [False, True])
def test_the_next_bearer_of_a_number_takes_no_record_along(
    records: ProcessRecords, process: subprocess.Popen[bytes], is_named_as_before: bool
) -> None:
    """A new run with a dead run's process id does not replace its record, so that the dead run's lock can be
    released.
    Records named without a time, as before, count as well.
    """
    earlier = datetime.now(UTC) - timedelta(hours=1)
    written = records.add(process.pid, earlier)
    written.write_text(written.read_text().replace('"birth": "', '"birth": "9'))
    if is_named_as_before:
        key, host = written.name[:16], socket.gethostname()
        written = written.rename(written.with_name(f"{key}.{host}.{process.pid}.json"))
    left = lock(process.pid, since=earlier + timedelta(seconds=2))
    refused = records.add(process.pid, datetime.now(UTC))
    assert records.were_locks_left_by_dead_runs((left,))
    assert not records.were_locks_left_by_dead_runs((lock(process.pid),))  # what runs may hold it
    process.kill()
    process.wait()
    refused.unlink()
    assert records.were_locks_left_by_dead_runs((left,))
    records.remove_dead_records()
    assert not written.exists()


def test_of_another_host_nothing_is_certain(
    records: ProcessRecords, process: subprocess.Popen[bytes]
) -> None:
    """A lock of another host stays, because its processes cannot be checked."""
    written = records.add(process.pid, datetime.now(UTC))
    written.write_text(written.read_text().replace(socket.gethostname(), "gone"))
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not records.were_locks_left_by_dead_runs((lock(process.pid, host="gone"),))
    records.remove_dead_records()
    assert written.exists()


def test_records_are_of_one_stack_and_are_forgotten_when_dead(
    tmp_path: Path, records: ProcessRecords, process: subprocess.Popen[bytes]
) -> None:
    """Records count for their own stack only, and are removed when their process is dead."""
    written = records.add(process.pid, datetime.now(UTC))
    (written.parent / f"{written.name[:16]}.host.1.json").write_text("{")
    process.kill()
    process.wait()
    another = ProcessRecords(tmp_path / "runs", f"{tmp_path}/prod")
    assert not another.were_locks_left_by_dead_runs((lock(process.pid),))
    another.remove_dead_records()
    assert records.were_locks_left_by_dead_runs((lock(process.pid),))
    records.remove_dead_records()
    assert not written.exists()


def test_what_a_dead_run_left_running_is_ended(records: ProcessRecords, tmp_path: Path) -> None:
    """Providers that a dead run left running are killed, those of a running run are not."""
    provider = tmp_path / "provider"
    script = f"sleep 600 & echo $! > {provider}.new; mv {provider}.new {provider}; wait"
    with subprocess.Popen(["/bin/sh", "-c", script], start_new_session=True) as run:
        records.add(run.pid, datetime.now(UTC))
        wait_for(provider.exists, "the provider")
        child = int(provider.read_text())
        records.kill_orphaned_providers()
        assert is_running(child)
        run.kill()
        run.wait()
        assert is_running(child)
        records.kill_orphaned_providers()
        wait_for(lambda: not is_running(child), "the provider to end")


@pytest.fixture
def lock_file(tmp_path: Path) -> Path:
    """Return a stack's lock file as Pulumi writes it."""
    folder = tmp_path / "a state" / ".pulumi" / "locks" / "organization" / "shop" / "dev"
    folder.mkdir(parents=True)
    file = folder / "0ba90a3d-6d56-45b9-a905-4a06bcc09baa.json"
    content = {"pid": 17, "username": "ci", "hostname": "b", "timestamp": "2026-01-02T03:04:05.123456789Z"}
    file.write_text(json.dumps(content))
    return file


def holder_of(lock_file: Path) -> LockHolder:
    """Return the holder as Pulumi's refusal names it."""
    url = f"{lock_file.as_uri()}?no_tmp_dir=true"
    (holder,) = parse_holders(f"\n  {url}: created by ci@b (pid 17) at 2026-01-02T04:04:05+01:00")
    return holder


def test_only_the_very_lock_is_removed(lock_file: Path) -> None:
    """Only the named lock is removed, not another run's lock on the same stack."""
    another = lock_file.with_name("1cb90a3d-6d56-45b9-a905-4a06bcc09baa.json")
    another.write_text(lock_file.read_text())
    assert remove_lock(holder_of(lock_file))
    assert not lock_file.exists()
    assert another.exists()
    assert remove_lock(holder_of(lock_file))  # somebody was faster


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("pid", 18),
        ("username", "me"),
        ("hostname", "c"),
        ("timestamp", "2026-01-02T03:04:06Z"),
        ("pid", None),
    ],
)
def test_a_lock_that_says_something_else_by_now_stays(lock_file: Path, key: str, value: object) -> None:
    """A lock whose content has changed since the refusal is not removed."""
    holder = holder_of(lock_file)
    lock_file.write_text(json.dumps({**json.loads(lock_file.read_text()), key: value}))
    assert not remove_lock(holder)
    assert lock_file.exists()


def test_a_lock_in_a_bucket_is_not_removed() -> None:
    """A lock in a bucket is not removed, as all of a stack's locks would go with it."""
    for place in ("s3://states/.pulumi/locks/organization/shop/dev/0ba90a3d.json", "file:///etc/passwd", ""):
        assert not remove_lock(LockHolder("ci", "b", 17, datetime.now(UTC), place))


def test_one_run_of_a_stack_at_a_time(tmp_path: Path, records: ProcessRecords) -> None:
    """A second run of a stack is refused with the first one's process id; another stack may run."""
    same = ProcessRecords(tmp_path / "runs", f"{tmp_path}/dev")
    with records.claim_stack():
        with pytest.raises(StackBusy, match=str(os.getpid())), same.claim_stack():
            pass
        with ProcessRecords(tmp_path / "runs", f"{tmp_path}/prod").claim_stack():
            pass
    with same.claim_stack():
        pass


def test_a_claim_that_cannot_be_written_is_an_error_of_ours(tmp_path: Path) -> None:
    """A claim that cannot be written raises an error that names the folder."""
    (tmp_path / "runs").touch()
    with (
        pytest.raises(ConfigurationError, match=f"nothing was begun: make {tmp_path}/runs a folder"),
        ProcessRecords(tmp_path / "runs", "dev").claim_stack(),
    ):
        pass


def test_a_stack_is_itself_by_whatever_name() -> None:
    """A stack is identified by backend, organization, project and name, not by folder or spelling."""

    def identity(named: str, work_dir: str = "/srv/a", url: str = "file:///srv/state", own: str = "") -> str:
        return stack_identity(named, {"name": "shop", "backend": {"url": own}}, url, work_dir)

    same = {
        identity("dev"),
        identity("organization/dev"),
        identity("organization/shop/dev", "/srv/b"),
        identity("dev", url="file:///srv/state/"),
        identity("dev", url="file://../state"),
        identity("dev", url="", own="file:///srv/state?no_tmp_dir=true"),
    }
    assert len(same) == 1
    others = {
        identity("prod"),
        identity("acme/dev"),
        identity("organization/cart/dev"),
        identity("dev", url="s3://states"),
    }
    assert len(others | same) == 5
