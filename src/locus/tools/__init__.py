"""Tools: functions that a model may ask for.

::

    @tool
    def save_note(content: str) -> str:
        \"\"\"Save a note for later reference.\"\"\"
"""

from locus.tools.definition import Tool, tool
from locus.tools.registry import ToolRegistry
from locus.tools.results import ToolOutcome

__all__ = ["Tool", "ToolOutcome", "ToolRegistry", "tool"]
