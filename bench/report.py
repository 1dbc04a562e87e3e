"""The page docs/project/benchmarks.md and its plots, written from the result files: no figure is typed by
hand.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

from bench import record
from bench.p11_drain import GONE_AFTER_FIGURE
from bench.plot import Axis, Point, line_plot_svg
from bench.record import Record, format_cell, format_measured_at, format_name, format_verdict
from lab.proof.subjects import Strategy

DOCS_FOLDER = Path(__file__).parents[1] / "docs" / "project"
PLOTS_FOLDER = DOCS_FOLDER / "plots"

_INTRODUCTION = """\
# Benchmarks

`make bench` measures all of this again, `make bench ONLY=P1,P3` some of it; it writes this page, its plots
and `bench/results/*.json` with all raw samples, and exits with 0 only if every bar held. Everything runs on
the lab's real servers, with the operator's default settings. A figure means nothing by itself, since machines
differ: compare it with the floor (the least that the work costs by hand) and with the peers (other ways to do
it, in `bench/peers`), which ran in the same minutes, in turn with ours.

A record names the day (UTC) and the commit that was measured. Those that say "recorded on ... by" are older
and name the commit that added them to the repository. With `REPEAT=3` a benchmark runs three times; the
figures are those of the run with the median headline, and the bar is held only if each run held it. A run
that its bar calls void is not recorded; one that does not hold its bar is. Of P8 three runs are a record.
`make bench-age` says how many commits touched what a benchmark measures since its record.
"""

TITLES = {
    "P1": "Latency: an EndpointSlice is patched until Eureka shows the instance",
    "P1x3": "Latency with three Eureka servers, until the first and until the last shows the instance",
    "P2": "Renewals: one round of 10,000 Eureka leases",
    "P3": "Cold start: 10,000 endpoints of 100 services into an empty Eureka",
    "P4": "Eureka restarted empty: its first answer until all 10,000 are back",
    "P5": "Resident memory",
    "P6": "Processor time while nothing changes, 10,000 instances",
    "P7": "The plan of 10,000 and 100,000 instances, 1 % changed",
    "P8": "Churn: up to 200 endpoint changes a second in 100 slices",
    "P8x3": "Churn with three Eureka servers, until the last one shows a change",
    "P9": "`pulumi up` of 1,000 registrations, and an unchanged preview",
    "P10": "Fail-over: the leader's end until the next change",
    "P11": "Rollouts while real Spring Cloud clients call without pause",
    "P12": "Growth",
    "P13": "Harm to Eureka: what 500 rounds of all that we do leave in a server of 1,000 instances",
    "P14": "Mirrors: Eureka's answer until all slices of 200 applications with 5,000 instances are right",
    "P15": "One of three Eureka servers is away, or a second Eureka hangs",
    "P16": "How long until callers know a new pod, and have forgotten one that ends",
    "P17": "One Eureka server, by its size: what a client fetches, and what it costs",
    "P18": "500 Services that joined one syncer, against a syncer for each",
}


def render_pages() -> dict[Path, str]:
    """Return the page and the plots of all records, by path."""
    found_by_name = {name: record.find_record(name) for name in TITLES}
    records = {name: found for name, found in found_by_name.items() if found is not None}
    overview = ["| benchmark | bar | measured |", "|---|---|---|"]
    overview += [
        f"| {name}. {TITLES[name]} | {format_verdict(found)} | {format_measured_at(found)} |"
        if found is not None
        else f"| {name}. {TITLES[name]} | | not measured |"
        for name, found in found_by_name.items()
    ]
    sections = [_benchmark_section(name, TITLES[name], found) for name, found in records.items()]
    plots = {
        PLOTS_FOLDER / plot: text
        for name, found in records.items()
        for plot, text in _draw_plots(name, found).items()
    }
    page = "\n".join([_INTRODUCTION, *overview, "", *sections])
    return {DOCS_FOLDER / "benchmarks.md": page, **plots}


def write_report() -> None:
    """Write the page and the plots."""
    for path, text in render_pages().items():
        path.write_text(text, encoding="utf-8")


def _benchmark_section(name: str, title: str, result: Record) -> str:
    columns = {"ours": result["ours"], "floor": result["floor"], **result["peers"]}
    columns = {label: figures for label, figures in columns.items() if figures}
    machine = result["machine"]
    where = f"{machine['cores']} cores, {machine['memory_gib']} GiB, Python {result['versions']['python']}"
    out = [
        f"## {name}. {title}\n",
        f"Bar: {result['bar']}: {format_verdict(result)}.\n",
        f"{result['unit'][:1].upper()}{result['unit'][1:]}; {where}; {format_measured_at(result)}.\n",
        f"| | {' | '.join(columns)} |",
        f"|---|{'---:|' * len(columns)}",
    ]
    out += _table_rows(columns)
    out.append("\n| compared | |\n|---|---:|")
    out += [
        f"| {format_name(ratio)} | {format_cell(value, 3)} |" for ratio, value in result["ratios"].items()
    ]
    out.append("")
    out += _stage_table(result)
    out += _run_table(result)
    out += [f"![{title}](plots/{plot})\n" for plot in _draw_plots(name, result)]
    return "\n".join(out)


def _table_rows(columns: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return a line for each figure, with a cell for each column."""
    out = []
    for row in dict.fromkeys(figure for figures in columns.values() for figure in figures):
        cells = [format_cell(figures[row]) if row in figures else "" for figures in columns.values()]
        out.append(f"| {format_name(row)} | {' | '.join(cells)} |")
    return out


def _stage_table(result: Record) -> list[str]:
    """Return the table of the stages in which the time is spent, if the record has one."""
    stages = result.get("stages")
    if not stages:
        return []
    head = [f"| where the time goes | {' | '.join(stages)} |", f"|---|{'---:|' * len(stages)}"]
    return [*head, *_table_rows(stages), ""]


def _run_table(result: Record) -> list[str]:
    """Return the headlines of each run, if there was more than one, and the reasons of void runs."""
    out = []
    runs = result["repeated"]
    if len(runs) > 1:
        columns = [(figure, label) for figure, by_label in runs[0]["figures"].items() for label in by_label]
        heads = (f"{format_name(figure)}: {label}" for figure, label in columns)
        out += [f"| run | {' | '.join(heads)} | bar |", f"|---|{'---:|' * len(columns)}---|"]
        for number, run in enumerate(runs, 1):
            cells = (format_cell(run["figures"][figure][label]) for figure, label in columns)
            held = "held" if run["held"] else "not held"
            out.append(f"| {number} | {' | '.join(cells)} | {held} |")
        out.append("")
    out += [f"One more run was void: {reason}.\n" for reason in result["void"]]
    return out


def _draw_plots(name: str, result: Record) -> dict[str, str]:
    """Return a record's plots as SVG documents, by file name."""
    if name == "P1":
        series = {
            label: _cumulative_percent([run["ms"] for run in result["runs"][label]])
            for label in ("floor", "ours", "kopf", "30 s poll")
        }
        x, y = Axis("milliseconds", is_log=True), Axis("percent of the samples")
        return {"p1.svg": line_plot_svg("Patch until Eureka shows the instance", x, y, series, dots=False)}
    if name == "P11":
        x, y = Axis("seconds since the rollouts began"), Axis("failed calls a second")
        return {
            "p11.svg": line_plot_svg(
                "Failed calls, by strategy", x, y, _failures_a_second(result), dots=False
            )
        }
    if name != "P12":
        return {}
    found = {}
    for number, (label, runs) in enumerate(result["runs"].items(), 1):
        by_size: dict[float, list[float]] = defaultdict(list)
        for run in runs:
            by_size[run["instances"]].append(run["an_instance"])
        line = [(size, sorted(values)[len(values) // 2]) for size, values in sorted(by_size.items())]
        title, _, unit = label.partition(", ")
        x, y = Axis("instances", is_log=True), Axis(unit.replace("us", "µs"))
        found[f"p12-{number}.svg"] = line_plot_svg(title.capitalize(), x, y, {"ours": line})
    return found


def _cumulative_percent(milliseconds: list[float]) -> list[Point]:
    """Return the percentage of samples that took at most a time, in a hundred steps."""
    ordered = sorted(milliseconds)
    return [
        (ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))], float(percent))
        for percent in range(101)
    ]


def _failures_a_second(result: Record) -> dict[str, list[Point]]:
    """Return the failed calls a second over all scenarios, by strategy; each point is the mean of five
    seconds.
    """
    length, found = 5, {}
    end = int(result["ours"][GONE_AFTER_FIGURE]) + length
    for strategy in Strategy:
        seconds, ending = Counter[int](), "-".join(strategy.split())
        called = [runs for application, runs in result["runs"].items() if application.endswith(ending)]
        if not called:
            continue
        for runs in called:
            for run in runs:
                seconds[run["second"] // length * length] += run["failed"]
        found[str(strategy)] = [(float(at), seconds[at] / length) for at in range(0, end, length)]
    return found
