"""Options for a pytest that a test starts."""

from __future__ import annotations

NO_STRANGERS = ["-p", "no:langsmith_plugin", "-p", "no:schemathesis"]
"""Without the plugins that other packages bring along: importing them takes longer than all the rest of a start."""
