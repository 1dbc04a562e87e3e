"""The lab: real Eureka servers and a Kubernetes control plane with kwok nodes on one machine, without
containers.

`with Lab(eureka=3) as lab:` for tests and benchmarks, `python -m lab up` for people. Not part of the wheel.
"""

from lab.errors import LabError
from lab.eureka import EUREKA_PASSWORD, EUREKA_USER, EurekaServer
from lab.lab import Lab
from lab.ports import FIXED_PORTS, Ports
from lab.processes import Process

__all__ = [
    "EUREKA_PASSWORD",
    "EUREKA_USER",
    "FIXED_PORTS",
    "EurekaServer",
    "Lab",
    "LabError",
    "Ports",
    "Process",
]
