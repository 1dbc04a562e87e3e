"""A policy pack for registrations in Eureka, made by either of Eurekube's providers."""

from pulumi_policy import (
    EnforcementLevel,
    PolicyConfigSchema,
    PolicyPack,
    ReportViolation,
    ResourceValidationArgs,
    ResourceValidationPolicy,
)
from rules import RULES, violations

NAMES = PolicyConfigSchema(
    properties={"names": {"type": "array", "items": {"type": "string"}}}, required=["names"]
)
"""The policy's setting with the allowed names, read from the file of `--policy-pack-config`."""


def policy(name: str) -> ResourceValidationPolicy:
    """Return the policy of one rule."""

    def validate(args: ResourceValidationArgs, report_violation: ReportViolation) -> None:
        names = args.get_config().get("names", []) if name == "known-name" else []
        for message in violations(name, args.resource_type, args.props, names):
            report_violation(message)

    return ResourceValidationPolicy(
        name=name,
        description=RULES[name].__doc__ or "",
        config_schema=NAMES if name == "known-name" else None,
        validate=validate,
    )


PolicyPack("eurekube", [policy(name) for name in RULES], enforcement_level=EnforcementLevel.MANDATORY)
