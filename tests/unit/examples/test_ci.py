"""Examples for Pulumi's services: their settings have only the published fields."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

CI = Path(__file__).parents[3] / "examples" / "ci"

TEXT, FLAG = {"type": "string"}, {"type": "boolean"}
TEXTS = {"type": "array", "items": TEXT}


def exactly(*required: str, **properties: Any) -> dict[str, Any]:
    """Return the schema of an object with these properties and no others."""
    closed = {"additionalProperties": False, "required": list(required)}
    return {"type": "object", "properties": properties, **closed}


DEPLOYMENT = exactly(
    "settings",
    settings=exactly(
        tag=TEXT,
        agentPoolID=TEXT,
        executorContext=exactly(workingDirectory=TEXT, executorImage={}, executorRootPath=TEXT),
        sourceContext=exactly(
            git=exactly("repoUrl", "branch", repoUrl=TEXT, branch=TEXT, repoDir=TEXT, commit=TEXT, gitAuth={})
        ),
        gitHub=exactly(
            repository=TEXT,
            pullRequestTemplate=FLAG,
            deployCommits=FLAG,
            previewPullRequests=FLAG,
            deployPullRequest={"type": "integer"},
            paths=TEXTS,
        ),
        operationContext=exactly(
            oidc={"type": "object"},
            preRunCommands=TEXTS,
            environmentVariables={
                "type": "object",
                "additionalProperties": {"anyOf": [TEXT, exactly("secret", secret=TEXT)]},
            },
            options=exactly(
                skipInstallDependencies=FLAG,
                skipIntermediateDeployments=FLAG,
                shell=TEXT,
                deleteAfterDestroy=FLAG,
                remediateIfDriftDetected=FLAG,
            ),
        ),
    ),
)
"""Schema of the settings for Pulumi Deployments under `settings`: DeploymentSettings of the REST API, as in
`apitype` of pulumi-cloud-sdk 1.20261104 and of the CLI 3.276.
"""

UPDATE = exactly(
    "workspaceName",
    "stackName",
    "type",
    workspaceName=TEXT,
    stackName=TEXT,
    type={**TEXT, "enum": ["preview", "up", "refresh", "destroy"]},
    refresh=FLAG,
    expectNoChanges=FLAG,
    runProgram=FLAG,
    continueOnError=FLAG,
    remove=FLAG,
    parallel={"type": "integer"},
    message=TEXT,
    target=TEXTS,
    targetDependents=FLAG,
    replace=TEXTS,
    ttlAfterCompleted=TEXT,
)
"""Schema of an Update's spec: deploy/crds/auto.pulumi.com_updates.yaml of the Pulumi Kubernetes Operator
2.9.
"""


@pytest.mark.parametrize("at", ["settings", "sourceContext", "operationContext"])
def test_the_settings_of_deployments_fit_their_schema(at: str) -> None:
    """The example's settings fit the schema, which refuses an unknown field at each level."""
    settings = yaml.safe_load((CI / "Pulumi.prod.deploy.yaml").read_text())
    validator = Draft202012Validator(DEPLOYMENT)
    assert list(validator.iter_errors(settings)) == []
    place = settings["settings"] if at == "settings" else settings["settings"][at]
    place["remediate"] = True
    assert len(list(validator.iter_errors(settings))) == 1


def test_the_operators_update_looks_and_changes_nothing() -> None:
    """The example's Update is a preview with a refresh that fails if it finds a change."""
    objects = {each["kind"]: each for each in yaml.safe_load_all((CI / "pulumi-operator.yaml").read_text())}
    update = yaml.safe_load(objects["ConfigMap"]["data"]["update.yaml"])
    assert list(Draft202012Validator(UPDATE).iter_errors(update["spec"])) == []
    assert (update["apiVersion"], update["kind"]) == ("auto.pulumi.com/v1alpha1", "Update")
    asked = {name: update["spec"][name] for name in ("type", "refresh", "expectNoChanges")}
    assert asked == {"type": "preview", "refresh": True, "expectNoChanges": True}
    (rule,) = objects["Role"]["rules"]
    assert rule == {
        "apiGroups": ["auto.pulumi.com"],
        "resources": ["updates"],
        "verbs": ["create", "delete", "get", "list", "watch"],
    }
    assert {each["metadata"]["namespace"] for each in objects.values()} == {update["metadata"]["namespace"]}


def test_the_same_command_looks_for_drift_everywhere() -> None:
    """Each CI example looks for drift with `eurekube drift`, which fails if it cannot look."""
    for name in ("drift.yml", "gitlab.yaml", "Pulumi.prod.deploy.yaml"):
        assert "eurekube drift --stack" in (CI / name).read_text()
