"""Equations of the pages: plain text in, MathML out, and nothing that is not understood."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"
pytest.importorskip("latex2mathml", reason="latex2mathml is an extra")
sys.path.insert(0, str(DOCS))

import typeset  # noqa: E402 - its folder has to be known first


@pytest.mark.parametrize("name", typeset.PAGES)
def test_every_indented_block_becomes_mathematics(name: str) -> None:
    text = (DOCS / name).read_text(encoding="utf-8")
    made = typeset.equations(text)
    outside = re.sub(r"^```.*?^```", "", made, flags=re.DOTALL | re.MULTILINE)
    assert re.findall(r"^ {4}\S.*", outside, flags=re.MULTILINE) == []
    blocks = re.findall(r"<math.*?</math>", made)
    assert blocks
    for block in blocks:
        tree = ElementTree.fromstring(block)
        said = [word for part in tree.iter() if part.tag.endswith(("mi", "mn", "mtext")) for word in part.itertext()]
        assert not set("".join(said)) & set("_^\\{}"), said  # what was not understood


@pytest.mark.parametrize(
    ("plain", "latex"),
    [
        ("L² = λmax(W_N P_{N−1} W_Nᵀ)", r"L^{2} = \lambda _{\max }(W_{N} P_{N-1} W_{N}^{\top })"),
        ("√(A_ll E_jj)", r"\sqrt{A_{l l} E_{j j}}"),
        ("P̂ − D^½", r"\hat{P} - D^{1/2}"),
        ("Σ_k x_k ≤ ½", r"\sum _{k} x_{k} \le  \tfrac{1}{2}"),
        ("W Σ B", r"W \Sigma  B"),
        ("s^(−axes)", r"s^{-\text{axes}}"),
        ("for all x, y", r"\text{ for all } x, y"),
    ],
)
def test_notation(plain: str, latex: str) -> None:
    assert typeset.latex(plain) == latex


def test_subscripts_in_text_but_not_in_code() -> None:
    made = typeset.indices("<p>Δv_i and W_{i−1}ᵀ, lower_bound, <code>v_i</code>, <a href='x_1'>λmax</a></p>")
    assert made == (
        "<p>Δ<i>v</i><sub>i</sub> and <i>W</i><sub>i−1</sub>ᵀ, lower_bound, <code>v_i</code>,"
        " <a href='x_1'>λ<sub>max</sub></a></p>"
    )
