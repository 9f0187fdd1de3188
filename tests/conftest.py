"""Fixtures and the hypothesis profile of the suite."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "lipcert",
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("explore", settings.get_profile("lipcert"), derandomize=False, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "lipcert"))

PAPER_TABLES = Path(__file__).resolve().parents[2] / "shared" / "paper_tables.json"


@pytest.fixture(scope="session")
def paper_tables() -> dict[str, Any]:
    """Every table of the paper, as numbers; a file that lives beside the repository."""
    if not PAPER_TABLES.exists():
        pytest.skip(f"the paper's tables are not at {PAPER_TABLES}")
    tables: dict[str, Any] = json.loads(PAPER_TABLES.read_text(encoding="utf-8"))
    return tables
