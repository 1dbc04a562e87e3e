"""Entry point ``python -m eurekube_provider.automation``: runs
:mod:`~eurekube_provider.automation.worker`.
"""

from __future__ import annotations

import sys

from eurekube_provider.automation.worker import main

sys.exit(main())
