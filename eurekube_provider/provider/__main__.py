"""Entry point ``python -m eurekube_provider.provider``, as Pulumi's language host starts it."""

from eurekube_provider.provider.server import main

main()
