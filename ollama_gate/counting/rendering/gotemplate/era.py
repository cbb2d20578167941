"""Which Ollama renders: the types that templates see, and so the texts they print, depend on its version."""

import re
from enum import Enum


class Era(Enum):
    """Spans of Ollama versions whose templates see the same types."""

    API_STRUCTS = "before 0.14"
    """Templates get the API's own structs; not known here when tools or tool calls are involved."""
    SHORT_PROPERTIES = "0.14 to 0.19"
    """`template/template.go:templateTool` and its kin: a tool prints as a Go struct; a property has no `required`."""
    TEMPLATE_STRUCTS = "0.20 to 0.29"
    """A property keeps its `required` (`api/types.go:ToolProperty`)."""
    JSON_TOOLS = "0.30 on"
    """A tool prints as JSON; its `.Function` is still a Go struct."""

    @classmethod
    def of(cls, version: str) -> "Era":
        """The era of a version as `/api/version` tells it; an unreadable one (a development build) is the newest."""
        match = re.match(r"v?(\d{1,6})\.(\d{1,6})", version)
        if match is None or match.groups() == ("0", "0"):
            return cls.JSON_TOOLS
        number = int(match[1]), int(match[2])
        if number < (0, 14):
            return cls.API_STRUCTS
        if number < (0, 20):
            return cls.SHORT_PROPERTIES
        return cls.TEMPLATE_STRUCTS if number < (0, 30) else cls.JSON_TOOLS
