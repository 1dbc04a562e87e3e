"""Entry point ``python -m eurekube_provider.automation``."""

from __future__ import annotations

import sys

from eurekube_provider.automation.worker import main

sys.exit(main())
