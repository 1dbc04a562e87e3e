"""The commands of ``eurekube``; each is loaded only when it is asked for."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

COMMAND_SUMMARIES = {
    "demo": "show what Eurekube does, in half a minute, on servers of its own",
    "status": "compare Kubernetes with Eureka, differences first",
    "watch": "the same, again and again",
    "plan": "show what the operator would do now, and do nothing",
    "instances": "list what Eureka holds, and whose it is",
    "explain": "explain an application or an instance: whose, who renews it, why it is not UP, what if ...",
    "doctor": "find what would cost callers an answer, and how it is fixed",
    "drain": "put an application or an instance out of service, and say when nobody calls it",
    "undrain": "put it back",
    "gate": "open the readiness gate of a workload's pods by hand",
    "render": "print what a stack's program makes",
    "apply": "make cluster and Eureka as a stack's program says, without Pulumi",
    "remove": "remove what eurekube apply made",
    "import": "print a program that takes over what an application has in Eureka",
    "summary": "tell what a preview means for discovery, for a pull request or for machines",
    "drift": "look for what was changed behind a stack's back",
    "keepalive": "renew what stacks registered, where no operator does",
    "operator": "keep the endpoints of Services registered in Eureka, from outside of the cluster",
    "dev": "run Eureka servers for development and tests, in memory",
    "crds": "print the CustomResourceDefinitions, for kubectl apply",
    "completion": "print the completion script of a shell",
}
"""The summary of each command; its module, ``<name>_command``, has ``add_arguments`` and ``run``."""


def load_command_module(command: str) -> ModuleType:
    return import_module(f"eurekube_provider.cli.{command}_command")
