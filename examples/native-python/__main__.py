"""A program that registers a machine and an application of two machines, and reads the first one from
Eureka.
"""

import pulumi
import pulumi_eurekube as eurekube

billing = eurekube.Instance(
    "billing",
    application="billing",
    host_name="192.0.2.10",
    port=8080,
    zone="zone-a",
    metadata={"tier": "1"},
)

rating = eurekube.Application(
    "rating",
    application="rating",
    port=8080,
    instances={"a": {"host_name": "192.0.2.11"}, "b": {"host_name": "192.0.2.12", "port": 9090}},
)

# Read past Eureka's caches when it is registered; unknown in the preview before.
found = eurekube.get_instance_output(
    application=billing.application,
    instance_id=billing.instance_id,
    opts=pulumi.InvokeOutputOptions(depends_on=[billing]),
)

pulumi.export("billing", found.instance.status)
pulumi.export("owner", rating.owner)
