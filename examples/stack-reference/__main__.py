"""A service outside of the cluster, registered for the operator that another stack runs.

The other stack is Eurekube's own program. Its exports name the operator and the Eureka.
"""

import pulumi

from eurekube_provider import EurekaApplication
from eurekube_provider.resources.program import leave_quietly_when_interrupted, program_connection

leave_quietly_when_interrupted()
config = pulumi.Config()
hosts = config.require_object("hosts")
platform = pulumi.StackReference(config.require("platform"))


def renewer(exports: list) -> str:
    """Return the name of the other stack's operator; refuse to go on if it serves another Eureka than this
    program.
    """
    operator, urls = exports
    ours = program_connection().service_urls
    if set(urls).isdisjoint(ours):
        raise pulumi.RunError(
            f"eurekube:url is {','.join(ours)}, but the operator of {config.require('platform')} renews at"
            f" {','.join(urls)}: what is registered here would lapse"
        )
    return operator["name"]


exports = pulumi.Output.all(platform.require_output("operator"), platform.require_output("eurekaUrls"))
registered = EurekaApplication(
    "billing",
    {
        "application": "billing",
        "port": 8080,
        "instances": {host: {"host_name": host} for host in hosts},
        "renewer": exports.apply(renewer),
    },
)
pulumi.export("instanceIds", registered.instance_ids)
