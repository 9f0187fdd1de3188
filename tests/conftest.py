"""The hypothesis profile of the suite, the command line, and no search for garbage in what stays until the end."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from command import NETWORK, Command

settings.register_profile(
    "lipcert",
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("explore", settings.get_profile("lipcert"), derandomize=False, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "lipcert"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules and thousands of tests are made and none is thrown away: looking through them took half of that time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture
def lipcert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command line in an empty folder, with a model and six points that it classifies."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    NETWORK.save("model.npz")
    x = np.random.default_rng(0).uniform(0.1, 0.9, (6, 3))
    np.savez("data.npz", x=x, y=NETWORK(x).argmax(axis=1))
    return Command(capsys)
