"""The native provider, as Pulumi's language host for Python starts it."""

from eurekube_provider.provider.server import main

main()
