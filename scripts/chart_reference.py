"""The generated files of the operator's chart, written by `make chart`.

Its README, the files that it packs, the rules of the operator's settings, and the kustomize base.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import yaml

from lab.programs import HELM, provide_programs
from scripts.chart_settings import settings_text

ROOT = Path(__file__).parents[1]
CHART_FOLDER = ROOT / "charts" / "eurekube"
README_FILE = CHART_FOLDER / "README.md"
SETTINGS_FILE = CHART_FOLDER / "files" / "settings.json"
BASE_FOLDER = ROOT / "deploy" / "kustomize" / "base"
CRDS_FOLDER = ROOT / "deploy" / "kustomize" / "crds"

PACKED_FOLDERS = {"crds": ROOT / "crds", "monitoring": ROOT / "examples" / "monitoring"}
"""Folders of files that the chart packs, by folder below its ``files``. Copies, since links may get lost."""

# Values of the base: an overlay gives the real URL, and kustomize runs no hooks.
_BASE_VALUES = ("eurekaUrls={http://eureka:8761/eureka}", "uninstallGuard=false", "crds.install=false")
_HELM_LINES_PATTERN = re.compile(
    r"^ +(helm\.sh/chart|app\.kubernetes\.io/(managed-by|version)): .*\n|^# Source: .*\n", re.MULTILINE
)


def read_chart_values() -> list[tuple[str, str, str]]:
    """Return the name of each chart value, its default from values.yaml, and the comment above it."""
    text = (CHART_FOLDER / "values.yaml").read_text()
    defaults = yaml.safe_load(text)
    found, comment = [], []
    for line in text.splitlines():
        if line.startswith("# "):
            comment.append(line.removeprefix("# "))
        elif named := re.match(r"(\w+):", line):
            name = named[1]
            found.append((name, format_yaml_inline(defaults[name]), " ".join(comment)))
            comment = []
    return found


def format_yaml_inline(value: object) -> str:
    """Return a value as YAML on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=1000)
    return text.removesuffix("...\n").strip()


def chart_readme() -> str:
    """Return the text of ``charts/eurekube/README.md``."""
    rows = "\n".join(f"| `{name}` | `{default}` | {text} |" for name, default, text in read_chart_values())
    return f"""# The chart eurekube

<!-- Written by `make chart` from values.yaml; do not edit. -->

Installs the Eurekube operator, which keeps the endpoints of Kubernetes Services registered in Netflix Eureka.

```
helm install eurekube charts/eurekube --namespace eurekube-system --create-namespace \\
  --set 'eurekaUrls={{http://eureka.example.com:8761/eureka}}'
```

How to upgrade, CRDs included, and how to uninstall: [docs/guides/helm.md](../../docs/guides/helm.md).

| value | default | meaning |
|---|---|---|
{rows}
"""


def render_base_manifest() -> str:
    """Return ``deploy/kustomize/base/operator.yaml``: the rendered default chart, without the labels that
    only Helm writes.
    """
    sets = [word for value in _BASE_VALUES for word in ("--set", value)]
    done = subprocess.run(
        [
            provide_programs([HELM])[HELM],
            "template",
            "eurekube",
            str(CHART_FOLDER),
            "--namespace",
            "eurekube-system",
            *sets,
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    return (
        "# Written by `make chart` from charts/eurekube; do not "
        f"edit.\n{_HELM_LINES_PATTERN.sub('', done.stdout)}"
    )


def crds_kustomization_text() -> str:
    """Return the text of ``deploy/kustomize/crds/kustomization.yaml``."""
    names = ", ".join(sorted(file.name for file in (ROOT / "crds").glob("*.yaml")))
    return f"apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [{names}]\n"


def main() -> None:
    """Write all generated files of the chart."""
    README_FILE.write_text(chart_readme())
    for name, folder in PACKED_FOLDERS.items():
        shutil.rmtree(CHART_FOLDER / "files" / name, ignore_errors=True)
        shutil.copytree(folder, CHART_FOLDER / "files" / name)
    SETTINGS_FILE.write_text(settings_text())  # before helm renders the base, which needs it
    (BASE_FOLDER / "operator.yaml").write_text(render_base_manifest())
    for file in (ROOT / "crds").glob("*.yaml"):
        shutil.copy(file, CRDS_FOLDER / file.name)
    (CRDS_FOLDER / "kustomization.yaml").write_text(crds_kustomization_text())


if __name__ == "__main__":
    main()
