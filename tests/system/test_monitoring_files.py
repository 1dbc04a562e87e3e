"""Alerts and dashboard, checked and run by promtool."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.programs import PROMTOOL, provide
from tests.system.conftest import ROOT
from tests.system.operator_objects import NAMESPACE, chart_objects

pytestmark = pytest.mark.lab

MONITORING = ROOT / "examples" / "monitoring"
RULES = yaml.safe_load((MONITORING / "rules.yaml").read_text())["spec"]
DASHBOARD = json.loads((MONITORING / "dashboard.json").read_text())
CASES = yaml.safe_load((Path(__file__).parent / "alert_cases.yaml").read_text())
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"]]

# What Grafana fills in.
_VARIABLES = {"$__rate_interval": "5m", "$namespace": NAMESPACE, "$syncer": ".*"}


def promtool(*arguments: str, folder: Path) -> None:
    """Run it; its words are the failure's."""
    program = provide([PROMTOOL])[PROMTOOL]
    done = subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def queries() -> Iterator[tuple[str, str]]:
    """Each query of the dashboard by the title of its panel, with Grafana's variables filled in."""
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            text = target["expr"]
            for name, value in _VARIABLES.items():
                text = text.replace(name, value)
            yield panel["title"], text


def test_every_alert_fires_and_is_silent(tmp_path: Path) -> None:
    """Each with series of its own, as promtool evaluates the rules."""
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
    """Promtool takes them, and they fire for the operator's namespace only."""
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


def test_promtool_takes_every_query_of_the_dashboard(tmp_path: Path) -> None:
    """As recording rules, which are checked as queries are."""
    rules = [{"record": f"query:{number}", "expr": text} for number, (_, text) in enumerate(queries())]
    assert len(rules) > 20
    (tmp_path / "queries.yaml").write_text(
        yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]})
    )
    promtool("check", "rules", "queries.yaml", folder=tmp_path)


def test_the_dashboard_s_panels_do_not_overlap() -> None:
    """Each has a place of its own, an id of its own and a sentence."""
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
