"""Tables of docs/guides/scale.md: the limits of one operator and one Eureka server, measured and
calculated.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.record import find_record, format_measured_at, read_record
from eurekube_provider.eureka.protocol.batch import MOST_ITEMS_PER_BATCH
from eurekube_provider.eureka.windows import LARGEST_ANSWER_BYTES, RENEWAL_INTERVAL_SECONDS

OPERATOR_SIZES = (10_000, 50_000, 100_000, 200_000)
SERVER_SIZES = (5_000, 20_000, 50_000)
Row = tuple[str, Sequence[str], str]


def operator_table() -> str:
    """Return the table of one operator's cost at each size; ``~`` marks calculated figures."""
    memory, idle, growth = read_record("P5"), read_record("P6"), read_record("P12")
    start = [
        growth["ours"][f"start, us an instance at {count:,}"] * count / 1e6 for count in (10_000, 50_000)
    ]
    upper = growth["ours"]["memory, KiB an instance at 50,000"] * 50_000 / 1024
    percent = idle["ours"]["1 Eureka"] / 10_000
    renewals = [count / RENEWAL_INTERVAL_SECONDS for count in OPERATOR_SIZES]
    small, middle = memory["ours"]["10,000"], memory["ours"]["50,000"]
    rows: list[Row] = [
        (
            "memory, MiB",
            (
                f"{small:.0f}",
                f"{middle:.0f}",
                *(f"~{middle + more * (middle - small) / 40_000:.0f}" for more in (50_000, 150_000)),
            ),
            _format_sources("P5"),
        ),
        (
            "the most in 40 s after a start, MiB",
            (
                f"{growth['ours']['memory, KiB an instance at 10,000'] * 10_000 / 1024:.0f}",
                f"{upper:.0f}",
                f"~{upper * 2:,.0f}",
                f"~{upper * 4:,.0f}",
            ),
            _format_sources("P12"),
        ),
        (
            "from its start until all are in an empty Eureka, s",
            (*(f"{one:.1f}" for one in start), f"~{start[1] * 2:.0f}", f"~{start[1] * 4:.0f}"),
            _format_sources("P12"),
        ),
        (
            "processor while nothing changes, percent of a core",
            (
                f"{percent * 10_000:.1f}",
                *(f"~{percent * count:.0f}" for count in OPERATOR_SIZES[1:]),
            ),
            _format_sources("P6"),
        ),
        ("renewals a second, to each server", [f"~{one:,.0f}" for one in renewals], "calculated"),
        (
            "requests with them a second, to each server",
            [f"~{one / MOST_ITEMS_PER_BATCH:,.0f}" for one in renewals],
            "calculated",
        ),
    ]
    return _format_table(
        ["one operator, instances", *(f"{count:,}" for count in OPERATOR_SIZES), "from"], rows
    )


def server_table() -> str:
    """Return the table of one Eureka server's sizes and cost at each number of instances."""
    found = find_record("P17")
    head = ["one Eureka server, instances", *(f"{count:,}" for count in SERVER_SIZES)]
    if found is None:
        return _format_table(head, [("P17 has no record yet", ["" for _ in SERVER_SIZES], "")])
    rows: list[Row] = [
        (title, [form.format(found["ours"][f"{name} at {count:,}"]) for count in SERVER_SIZES], "")
        for title, name, form in _SERVER_ROWS
    ]
    return _format_table(head, rows)


_SERVER_ROWS = (
    ("the whole list, MiB", "list, MiB", "{:.1f}"),
    ("the same in gzip, MiB", "list, gzip, MiB", "{:.2f}"),
    ("delta after 1 % has changed, KiB", "delta of 1 %, KiB", "{:.0f}"),
    ("the same in gzip, KiB", "delta of 1 %, gzip, KiB", "{:.0f}"),
    (
        "processor time to make the list anew and send it, s",
        "list that is made anew, CPU seconds of the server",
        "{:.2f}",
    ),
    (
        "processor time to renew all once, in batches, s",
        "renewals of all by batches, CPU seconds of the server",
        "{:.2f}",
    ),
    ("live memory without a list, MiB", "heap without a list, MiB", "{:.0f}"),
    ("live memory with the list, MiB", "heap with the list, MiB", "{:.0f}"),
    ("processor time of the operator to read the list, s", "read by Eurekube, CPU seconds", "{:.2f}"),
)


def measured_phrases() -> list[str]:
    """Return the phrases with measured figures that the page must contain, each with its record."""
    memory, churn, idle = read_record("P5"), read_record("P8"), read_record("P6")
    each = (memory["ours"]["50,000"] - memory["ours"]["10,000"]) / 40_000 * 1024
    changes, percent = churn["ours"]["changes_a_second"], churn["ours"]["cpu_percent"]
    single = idle["peers"]["one PUT each"]["1 Eureka"]
    said = [
        f"{each:.1f} KiB an instance beyond (P5, {format_measured_at(memory)})",
        f"{changes:.0f} changes a second take {percent:.0f} % of a core (P8, {format_measured_at(churn)})",
        (
            f"{single:.0f} % of a core for 10,000 instances (P6, {format_measured_at(idle)}, sent by another "
            "program)"
        ),
    ]
    if found := find_record("P17"):
        large = SERVER_SIZES[-1]
        text, zipped = (
            found["ours"][f"{name} at {large:,}"] * 2**20 / large for name in ("list, MiB", "list, gzip, MiB")
        )
        answers, copied = (
            found["ours"][f"{name} at {large:,}"]
            for name in ("a server that starts answers after, s", "and has copied all after, s")
        )
        said += [
            f"{text:,.0f} bytes an instance, {zipped:.0f} in gzip (P17, {format_measured_at(found)})",
            f"some {LARGEST_ANSWER_BYTES / text / 1000:.0f},000 instances",
            f"answered after {answers:.0f} s, and held all {large:,} after {copied:.0f} s",
        ]
    return said


def _format_sources(*names: str) -> str:
    records = ((name, find_record(name)) for name in names)
    return "; ".join(f"{name}, {format_measured_at(found)}" for name, found in records if found is not None)


def _format_table(head: Sequence[str], rows: Sequence[Row]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|---|{'---:|' * (len(head) - 1)}"]
    for title, cells, source in rows:
        columns = [title, *cells, source][: len(head)]
        lines.append(f"| {' | '.join(columns)} |")
    return "\n".join(lines) + "\n"
