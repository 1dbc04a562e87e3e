"""Objects of the Prometheus Operator: the ServiceMonitor, and the PrometheusRule with the alerts."""

from __future__ import annotations

import re
from typing import Any

from eurekube_provider.resources.files import read_yaml_documents
from eurekube_provider.resources.operator_component.operator_arguments import EurekubeOperatorArgs

MONITORING_API_VERSION = "monitoring.coreos.com/v1"


def service_monitor_spec(labels: dict[str, str], args: EurekubeOperatorArgs) -> dict[str, Any]:
    """Return the ``spec`` of a ServiceMonitor for the Service with these labels."""
    return {
        "namespaceSelector": {"matchNames": [args.namespace]},
        "selector": {"matchLabels": labels},
        "endpoints": [{"port": "http", "path": "/metrics", "interval": "30s"}],
    }


def prometheus_rule_spec(args: EurekubeOperatorArgs) -> dict[str, Any]:
    """Return a PrometheusRule's ``spec``: the alerts of ``examples/monitoring``, for this operator's pods."""
    (document,) = read_yaml_documents("monitoring", "examples/monitoring")
    groups = [
        {
            **group,
            "name": f"{group['name']}-{args.namespace}",
            "rules": [_limit_rule_to_operator(rule, args) for rule in group["rules"]],
        }
        for group in document["spec"]["groups"]
    ]
    return {"groups": groups}


def _limit_rule_to_operator(rule: dict[str, Any], args: EurekubeOperatorArgs) -> dict[str, Any]:
    """Return an alert's rule for the series of one operator only, selected by namespace."""
    selected = re.sub(r"\beurekube_\w+", rf'\g<0>{{namespace="{args.namespace}"}}', rule["expr"])
    return {**rule, "expr": selected}
