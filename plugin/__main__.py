"""Entry point of the native provider, which Pulumi's language host for Python starts."""

from eurekube_provider.provider.server import main

main()
