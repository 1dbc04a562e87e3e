"""``python -m eurekube_provider.automation``: runs :mod:`~eurekube_provider.automation.worker`."""

import sys

from eurekube_provider.automation.worker import main

sys.exit(main())
