"""A program that registers one machine. uv's environment has no pip, and needs none."""

import pulumi
import pulumi_eurekube as eurekube

billing = eurekube.Instance(
    "billing", application="billing", host_name="192.0.2.10", port=8080, zone="zone-a"
)
pulumi.export("owner", billing.owner)
