"""Equations of the pages as MathML, which browsers show without help from elsewhere.

The pages are plain text that can be read as it is: equations stand indented, in Unicode, with ``_`` and ``^`` for what
is lower and higher. :func:`equations` typesets the indented ones of a page, :func:`indices` sets the subscripts that
stand in running text.
"""

from __future__ import annotations

import re
import unicodedata

from latex2mathml.converter import convert

PAGES = ("index.md", "mathematics.md", "soundness.md")
"""Pages on which what is indented is an equation."""
WORDED = (*PAGES, "api.md", "errata.md", "ordinary.md", "own-method.md", "published.md", "uses.md")
"""Pages whose text has symbols with subscripts."""
_NAMED = """
≤ le ≥ ge ≼ preceq ≽ succeq ≻ succ · cdot ∘ circ ← leftarrow → rightarrow ∇ nabla ∂ partial ∈ in ‖ Vert … dots ± pm
∞ infty × times ⟹ Rightarrow ≠ ne ≈ approx ℓ ell ∑ sum ∩ cap Π prod α alpha β beta γ gamma Γ Gamma δ delta Δ Delta
ε varepsilon ζ zeta η eta θ theta Θ Theta κ kappa λ lambda Λ Lambda μ mu ν nu ξ xi π pi ρ rho σ sigma Σ Sigma τ tau
φ varphi Φ Phi ψ psi Ψ Psi ω omega Ω Omega
"""
"""Characters and what LaTeX calls them."""
_SYMBOLS = dict(zip(_NAMED.split()[::2], (f"\\{name} " for name in _NAMED.split()[1::2])))
_SYMBOLS |= {"−": "-", "½": r"\tfrac{1}{2}", "*": "^{*}", "′": "'", "\u2009": " "}
_RAISED = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ᵛᵃ", "0123456789-+va")) | {"ᵀ": r"\top ", "½": "1/2"}
_LOWERED = dict(zip("₀₁₂₃₄₅₆₇₈₉ᵢⱼₖ", "0123456789ijk"))
_HATS = {"\u0304": r"\bar", "\u0302": r"\hat", "\u0303": r"\tilde", "\u0305": r"\bar", "\u0307": r"\dot"}
_FUNCTIONS = ("diag", "tr")
_WORDS = r"[A-Za-z]{2,}(?:'s)?(?:,? (?!max|min|log)[a-z]{2,}(?![A-Za-z_ᵀ²]))*"


def equations(text: str) -> str:
    """The Markdown of a page with its indented blocks typeset; what is fenced stays as it is."""
    parts = re.split(r"(^```.*?^```\n?)", text, flags=re.DOTALL | re.MULTILINE)
    block = re.compile(r"(?<=\n\n)((?: {4}.*\n)(?:(?: {4}.*)?\n(?= {4})|(?: {4}.*\n))*)")
    return "".join(part if part.startswith("```") else block.sub(lambda m: _block(m[1]), part) for part in parts)


def _block(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if all(line.startswith("[") for line in lines):
        rows = [re.fullmatch(r"\[(.*)\](.*)", line) for line in lines]
        assert all(rows), text
        cells = [" & ".join(map(latex, re.split(r" {2,}", row[1].strip()))) for row in rows if row]
        tail = "".join(latex(row[2]) for row in rows if row)
        sources = [r"\begin{bmatrix} " + r" \\ ".join(cells) + r" \end{bmatrix} " + tail]
    else:
        sources = [latex(line) for line in lines]
    shown = "".join(convert(source, display="block") for source in sources)
    shown = re.sub(r"<mi>(&#x02A(?:B0|AF);)</mi>", r"<mo>\1</mo>", shown)
    matrix = r"<mo[^>]*>&#x0005B;</mo>(<mtable)(.*?</mtable>)<mo[^>]*>&#x0005D;</mo>"
    shown = re.sub(matrix, r'\1 class="bracketed"\2', shown, flags=re.DOTALL)
    return f'<div class="equation" markdown="0">{shown}</div>\n'


def latex(text: str) -> str:
    """LaTeX of one line of plain text.

    Examples
    --------
    >>> latex("L² = λmax(W_N P_{N−1} W_Nᵀ)")
    'L^{2} = \\\\lambda _{\\\\max }(W_{N} P_{N-1} W_{N}^{\\\\top })'
    """
    text = re.sub(r" {3,}", "\u2003", unicodedata.normalize("NFD", text.strip()))
    out, place = "", 0
    while place < len(text):
        made, place = _piece(text, place)
        out += made
    return re.sub(r"\}\^\{", "}^{", out)


def _piece(text: str, place: int) -> tuple[str, int]:
    """The next piece of a line as LaTeX, and where it ends."""
    char, rest = text[place], text[place:]
    if char == "\u2003":
        return r" \qquad ", place + 1
    if rest.startswith("λmax"):
        return r"\lambda _{\max }", place + 4
    if char == "Σ" and re.match(r"Σ(_|[A-Za-zθ]|\()", rest):
        return r"\sum ", place + 1
    if char == "√":
        inner, end = _group(text, place + 1)
        return rf"\sqrt{{{latex(inner)}}}", end
    if char in "_^":
        inner, end = _group(text, place + 1)
        made = "".join({"½": "1/2", "−": "-"}.get(c, c) for c in inner)
        if re.fullmatch(r"-?[A-Za-z]{3,}", made):
            made = re.sub(r"([A-Za-z]+)", r"\\text{\1}", made)
        elif re.fullmatch(r"[A-Za-z]{2}", made):
            made = " ".join(made)
        elif "1/2" not in made:
            made = latex(made)
        return f"{char}{{{made}}}", end
    for table, mark in ((_RAISED, "^"), (_LOWERED, "_")):
        run = re.match(f"[{''.join(table)}]+", rest)
        if run and not (char == "½" and (place == 0 or text[place - 1] in " (+−=≤·")):
            return f"{mark}{{{''.join(table[c] for c in run[0])}}}", place + len(run[0])
    word = re.match(r"(?:log|logdet|max|min|exp|diag|tr)(?![A-Za-z])", rest) or re.match(_WORDS, rest)
    if word:
        return _word(word[0]), place + len(word[0])
    if place + 1 < len(text) and text[place + 1] in _HATS:
        return f"{_HATS[text[place + 1]]}{{{_SYMBOLS.get(char, char)}}}", place + 2
    return _SYMBOLS.get(char, char), place + 1


def _word(word: str) -> str:
    if word == "logdet":
        return r"\log \det "
    if word in ("log", "max", "min", "exp"):
        return f"\\{word} "
    if word in _FUNCTIONS:
        return rf"\operatorname{{{word}}}"
    if len(word) == 2 and word not in ("of", "or", "is", "in", "to", "as", "at", "by", "if", "on", "no", "we"):
        return " ".join(word)  # a product
    return rf"\text{{ {word} }}"


def _group(text: str, place: int) -> tuple[str, int]:
    """What a root or an index is about: something in brackets, or a run of letters or digits; and where it ends."""
    opening = text[place]
    if opening in "{(":
        depth = 0
        for end in range(place, len(text)):
            depth += (text[end] in "{(") - (text[end] in "})")
            if depth == 0:
                return text[place + 1 : end], end + 1
    run = re.match(r"[−-]?(?:[A-Za-z]+|[0-9]+|½|.)", text[place:])
    assert run is not None
    return run[0], place + len(run[0])


def indices(html: str) -> str:
    """Subscripts and superscripts of symbols in running text; code and equations stay as they are."""
    parts = re.split(r"(<(code|pre|math|script|style)\b.*?</\2>|<[^>]+>)", html, flags=re.DOTALL)
    kept = [part for number, part in enumerate(parts) if number % 3 != 2]  # the third is the tag's name
    symbol = r"(?<![A-Za-z0-9_`/.\-])([A-Za-z\u0370-\u03ff][\u0300-\u0307\u2032']?)"
    made = []
    for part in kept:
        if not part.startswith("<"):
            part = re.sub(symbol + r"_(?:\{([^}]*)\}|([A-Za-z0-9]{1,5})(?![A-Za-z0-9_]))", _lowered, part)
            part = re.sub(r"λmax", "λ<sub>max</sub>", part)
        made.append(part)
    return "".join(made)


def _lowered(match: re.Match[str]) -> str:
    return f"<i>{match[1]}</i><sub>{match[2] or match[3]}</sub>"
