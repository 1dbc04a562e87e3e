"""``python -m eurekube_provider.automation``: see :mod:`~eurekube_provider.automation.worker`."""

from __future__ import annotations

import sys

from eurekube_provider.automation.worker import main

sys.exit(main())
