"""Alert rules and dashboard, checked and run by promtool, and the dashboard's queries on an operator's
metrics.
"""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from eurekube_provider.core.model import Instance, Port
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.writer import Writer
from eurekube_provider.kube.access import MIRRORS, STACK_REFRESHES
from lab.programs import PROMTOOL, provide_programs
from lab.workloads import Cluster, wait_for
from tests.system.conftest import ROOT, StartOperator
from tests.system.operator_objects import NAMESPACE, chart_objects
from tests.system.test_web import listening_port, page

pytestmark = pytest.mark.lab

MONITORING = ROOT / "examples" / "monitoring"
RULES = yaml.safe_load((MONITORING / "rules.yaml").read_text())["spec"]
DASHBOARD = json.loads((MONITORING / "dashboard.json").read_text())
CASES = yaml.safe_load((Path(__file__).parent / "alert_cases.yaml").read_text())
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"]]

# What Grafana fills in.
_VARIABLES = {"$__rate_interval": "5m", "$namespace": NAMESPACE, "$syncer": ".*"}


def promtool(*arguments: str, folder: Path) -> None:
    """Run promtool; fail with its output."""
    program = provide_programs([PROMTOOL])[PROMTOOL]
    done = subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def queries() -> Iterator[tuple[str, str]]:
    """Yield each query of the dashboard with its panel's title, with values for Grafana's variables."""
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            text = target["expr"]
            for name, value in _VARIABLES.items():
                text = text.replace(name, value)
            yield panel["title"], text


def test_every_alert_fires_and_is_silent(tmp_path: Path) -> None:
    """Each alert fires and stays silent for series made for it, as promtool evaluates the rules."""
    assert sorted(CASES) == sorted(rule["alert"] for rule in ALERTS)
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(RULES))
    promtool("check", "rules", "--lint-fatal", "rules.yaml", folder=tmp_path)
    tests = [_case(rule, CASES[rule["alert"]][kind]) for rule in ALERTS for kind in ("fires", "silent")]
    document = {"rule_files": ["rules.yaml"], "evaluation_interval": "30s", "tests": tests}
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(document))
    promtool("test", "rules", "tests.yaml", folder=tmp_path)


def _case(rule: dict[str, Any], case: dict[str, Any]) -> dict[str, Any]:
    expected = []
    if "labels" in case:
        expected = [{"exp_labels": {**rule["labels"], **case["labels"]}}]
    return {
        "name": rule["alert"],
        "interval": "30s",
        "input_series": [{"series": name, "values": values} for name, values in case["series"].items()],
        # By the series ALERTS: promtool's own form for alerts compares the annotations' words as well.
        "promql_expr_test": [
            {
                "expr": f"count by ({', '.join(['alertname', 'severity', *case['labels']])})"
                f'(ALERTS{{alertname="{rule["alert"]}", alertstate="firing"}})'
                if expected
                else f'ALERTS{{alertname="{rule["alert"]}", alertstate="firing"}}',
                "eval_time": case["at"],
                "exp_samples": [
                    {"labels": _series({"alertname": rule["alert"], **one["exp_labels"]}), "value": 1}
                    for one in expected
                ],
            }
        ],
    }


def _series(labels: dict[str, str]) -> str:
    return "{" + ", ".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


def test_the_chart_s_rules_are_these_for_one_operator(tmp_path: Path) -> None:
    """promtool accepts the chart's rules, and they fire for the operator's namespace only."""
    values = {"eurekaUrls": ["http://e/eureka"], "prometheusRule": True}
    (rule,) = [item for item in chart_objects(values, tmp_path) if item["kind"] == "PrometheusRule"]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rule["spec"]))
    promtool("check", "rules", "--lint-fatal", "rules.yaml", folder=tmp_path)
    tests = []
    for namespace, count in ((NAMESPACE, 1), ("other", 0)):
        braked = {"series": f'eurekube_braked{{namespace="{namespace}", syncer="a/b"}}', "values": "1x9"}
        fired = {"labels": "{}", "value": 1}
        tests.append(
            {
                "interval": "30s",
                "input_series": [braked],
                "promql_expr_test": [
                    {
                        "expr": 'count(ALERTS{alertname="EurekubeBraked"})',
                        "eval_time": "2m",
                        "exp_samples": [fired] * count,
                    }
                ],
            }
        )
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump({"rule_files": ["rules.yaml"], "tests": tests}))
    promtool("test", "rules", "tests.yaml", folder=tmp_path)


def test_each_alert_leads_to_its_page(tmp_path: Path) -> None:
    """Each alert's runbook URL leads to an existing heading below the configured base; without a base no
    alert has one.
    """
    base = "https://git.example.com/docs"

    def annotations(**more: str) -> dict[str, str | None]:
        values = {"eurekaUrls": ["http://e/eureka"], "prometheusRule": True, **more}
        (rule,) = [item for item in chart_objects(values, tmp_path) if item["kind"] == "PrometheusRule"]
        rules = [one for group in rule["spec"]["groups"] for one in group["rules"]]
        return {one["alert"]: one["annotations"].get("runbook_url") for one in rules}

    assert set(annotations().values()) == {None}
    found = annotations(runbookBaseUrl=f"{base}/")
    assert found == annotations(runbookBaseUrl=base)
    for alert, url in found.items():
        page, _, heading = str(url).removeprefix(f"{base}/").partition("#")
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        assert heading in {re.sub(r"[^a-z0-9 -]", "", one.lower()).replace(" ", "-") for one in headings}, (
            alert
        )


def test_promtool_takes_every_query_of_the_dashboard(tmp_path: Path) -> None:
    """promtool accepts every query of the dashboard as a recording rule."""
    rules = [{"record": f"query:{number}", "expr": text} for number, (_, text) in enumerate(queries())]
    assert len(rules) > 20
    (tmp_path / "queries.yaml").write_text(
        yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]})
    )
    promtool("check", "rules", "queries.yaml", folder=tmp_path)


class Taken(BaseHTTPRequestHandler):
    """A pipeline's web server, which accepts every call."""

    def do_POST(self) -> None:
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def pipeline() -> Iterator[str]:
    """Return the URL of the pipeline that a webhook calls."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Taken)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/hook"
    server.shutdown()
    server.server_close()


def test_every_panel_draws_what_an_operator_exports(
    cluster: Cluster,
    eureka: Peers,
    namespace: str,
    start_operator: StartOperator,
    pipeline: str,
    tmp_path: Path,
) -> None:
    """Each query of the dashboard finds series among the metrics of a running operator, all of which grow in
    this test.

    The series of broken watches is made here, because the operator's watches do not break.
    """
    app, machine = f"{namespace}-app", f"{namespace}-machine"
    cluster.apply_deployment(namespace, app, 1)
    cluster.apply_service(namespace, app)
    cluster.apply_syncer(namespace, app)
    Writer(eureka).register(Instance(machine, f"vm:{machine}", "192.0.2.77", "192.0.2.77", Port(8080)))
    (tmp_path / "key").write_text("key")
    target = {
        "kind": "webhook",
        "namespaces": [namespace],
        "url": pipeline,
        "secret-file": str(tmp_path / "key"),
    }
    (tmp_path / "operator.yaml").write_text(yaml.safe_dump({"targets": {"ci": target}}))
    metadata = {"namespace": namespace, "name": "one"}
    for kind, resource, spec in (
        ("EurekaMirror", MIRRORS, {"application": machine}),
        ("StackRefresh", STACK_REFRESHES, {"selector": {"app": app}, "action": "Up", "target": "ci"}),
    ):
        body = {"apiVersion": "eurekube.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}
        cluster.apply(resource, body)
    operator = start_operator(
        WEB_ADDRESS="127.0.0.1:0",
        CONFIG=str(tmp_path / "operator.yaml"),
        MIRRORS="true",
        MIRROR_CIDRS="192.0.2.0/24",
    )
    port = wait_for(lambda: listening_port(operator.text()), "the web's port", 60.0)
    late = ("eurekube_refresh_runs_total{", "eurekube_mirror_read_timestamp_seconds{", f'syncer="{namespace}')
    wait_for(lambda: all(one in page(port, "/metrics") for one in late), "all series", 120.0)
    series = {
        f"{sample.name}{{{','.join(f'{name}={json.dumps(value)}' for name, value in labels.items())}}}"
        for family in text_string_to_metric_families(page(port, "/metrics"))
        for sample in family.samples
        for labels in [{**sample.labels, "namespace": NAMESPACE}]
        if sample.name.startswith("eurekube_")
    }
    restarts = f'eurekube_watch_restarts_total{{resource="services",reason="ended",namespace="{NAMESPACE}"}}'
    cases = [
        {
            "name": title,
            "interval": "30s",
            "input_series": [{"series": one, "values": "1+1x20"} for one in sorted({*series, restarts})],
            "promql_expr_test": [
                {
                    "expr": f"count({text}) > bool 0",
                    "eval_time": "8m",
                    "exp_samples": [{"labels": "{}", "value": 1}],
                }
            ],
        }
        for title, text in queries()
    ]
    assert len(cases) > 20
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump({"rule_files": [], "tests": cases}))
    promtool("test", "rules", "tests.yaml", folder=tmp_path)


def test_the_dashboard_s_panels_do_not_overlap() -> None:
    """Each panel has a position, an id and a description of its own."""
    places: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        grid = panel["gridPos"]
        own = {
            (x, y)
            for x in range(grid["x"], grid["x"] + grid["w"])
            for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert not own & places, panel["title"]
        assert max(x for x, _ in own) < 24
        places |= own
        assert re.search(r"\w", panel["description"]), panel["title"]
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
