"""What the pages need beyond configuration: equations, and roles of docstrings, which Markdown does not know."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from typeset import PAGES, WORDED, equations, indices


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Typeset the equations of a page."""
    return equations(markdown) if page.file.src_uri in PAGES else markdown


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Set subscripts, leave out headings of tables that are empty, and the role before a name."""
    html = re.sub(r":(?:func|meth|class|mod|data):(?=<code)", "", html)
    html = indices(html) if page.file.src_uri in WORDED else html
    return re.sub(r"<thead>\s*<tr>(?:\s*<th[^>]*></th>)+\s*</tr>\s*</thead>", "", html)
