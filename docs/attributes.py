"""Docstrings give attributes a line each, ``name : what it is``; the API page wants the words below the name."""

from __future__ import annotations

import re
from typing import Any

import griffe


class AttributesInOneLine(griffe.Extension):
    """Rewrites the sections of attributes before they are read."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Rewrite the docstring of one object."""
        if not obj.is_alias and obj.docstring is not None:
            head, mark, section = obj.docstring.value.partition("Attributes\n----------\n")
            section = re.sub(r"^(\w[\w, ]*) : (.*)$", r"\1\n    \2", section, flags=re.MULTILINE)
            obj.docstring.value = head + mark + section
