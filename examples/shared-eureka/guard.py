"""A guard that limits a stack to its team's applications; the platform team provides it, as a file or a
package.

Eurekube changes and removes only instances that carry the stack's own name as their owner. A program can
still adopt other instances. The guard refuses that, and keeps the stack to the team's applications.
"""

from collections.abc import Iterable

import pulumi

REGISTRATIONS = (
    "pulumi-python:dynamic/eurekube:EurekaInstance",
    "pulumi-python:dynamic/eurekube:EurekaApplication",
)


def may_only_register(applications: Iterable[str]) -> None:
    """Let the program register only these applications from now on, and adopt no instance.

    Call it before the first resource. An application that is not known before the update, and so cannot be
    checked in a preview, is refused as well.
    """
    allowed = {name.upper() for name in applications}

    def check(args: pulumi.ResourceTransformationArgs) -> None:
        if args.type_ not in REGISTRATIONS:
            return
        application, on_conflict = args.props.get("application"), args.props.get("on_conflict")
        if not isinstance(application, str) or application.upper() not in allowed:
            raise pulumi.RunError(
                f"{args.name}: this stack may register {', '.join(sorted(allowed))}, not {application}"
            )
        if on_conflict not in (None, "fail"):
            raise pulumi.RunError(
                f"{args.name}: this stack may take over nothing that another one registered"
            )

    pulumi.runtime.register_stack_transformation(check)
