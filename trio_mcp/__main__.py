"""The command line, for ``python -m trio_mcp``."""

from __future__ import annotations

import sys

from trio_mcp.cli import main

sys.exit(main())
