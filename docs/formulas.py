"""Formulas of the site: what docstrings write between dollar signs, as MathML.

Docstrings are read in terminals, so their formulas are written as one types them: `$A_t = delta_t + gamma A_{t+1}$`.
Greek letters have their names, `_` and `^` take a word, a number or what braces hold, `sqrt(x)` is a root, and a slash
between blanks is a fraction of the operands beside it. Single letters are variables, longer words stand upright.
"""

from __future__ import annotations

import re
from html import escape
from typing import NamedTuple

SYMBOLS = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "lam": "λ", "mu": "μ", "pi": "π", "rho": "ρ", "sigma": "σ",
    "tau": "τ", "sum": "∑", "-": "−", "+-": "±", "<=": "≤", ">=": "≥", "<-": "←", "*": "⋅", "...": "…",
}  # fmt: skip
TOKEN = re.compile(r"\s+|\d+(?:\.\d+)?(?:e[+-]?\d+)?|\.\d+|[A-Za-z]+|\+-|<=|>=|<-|\.\.\.|[-+*/=<>|,;:()\[\]{}^_]")
CLOSED = {"(": ")", "[": "]", "{": "}"}
GAP = '<mspace width="0.2em"/>'


class Part(NamedTuple):
    """An element of a formula."""

    shown: str
    operand: bool = True
    inner: str = ""
    """What brackets hold: they are left out above and below the line of a fraction."""


def mathml(formula: str) -> str:
    """Return a formula as an element of MathML.

    >>> mathml("x_t")
    '<math displaystyle="true"><msub><mi>x</mi><mi>t</mi></msub></math>'
    >>> mathml("(a + 1) / b").removeprefix('<math displaystyle="true">')
    '<mfrac><mrow><mi>a</mi><mo>+</mo><mn>1</mn></mrow><mi>b</mi></mfrac></math>'

    Raises:
        ValueError: A sign is unknown, a bracket is not closed, or an operand is missing.
    """
    tokens, end = list[str](), 0
    while end < len(formula):
        found = TOKEN.match(formula, end)
        if found is None:
            raise ValueError(f"a formula has no {formula[end]!r}: {formula}")
        tokens.append(found[0])
        end = found.end()
    try:
        return f'<math displaystyle="true">{_row(tokens[::-1], "")}</math>'
    except (IndexError, KeyError) as e:
        raise ValueError(f"a bracket or an operand is missing: {formula}") from e


def _row(tokens: list[str], end: str) -> str:
    """Take tokens from the end of the list up to a closing bracket, or all."""
    parts = [Part("", operand=False)]
    blank = over = False
    while tokens or end:
        token = tokens.pop()
        if token == end:
            break
        if token.isspace() or (token == "/" and blank and parts[-1].operand):
            blank, over = True, over or token == "/"
            continue
        part = _part(tokens, token, sign=not parts[-1].operand)
        if over and not part.operand:
            break
        if over:
            above = parts.pop()
            part = Part(f"<mfrac>{_one(above.inner or above.shown)}{_one(part.inner or part.shown)}</mfrac>")
        elif blank and part.operand and parts[-1].operand:
            parts.append(Part(GAP, operand=False))
        parts.append(part)
        blank = over = False
    if over:
        raise KeyError("/")
    return "".join(part.shown for part in parts)


def _part(tokens: list[str], token: str, *, sign: bool = False) -> Part:
    """Take an operand with its subscript and superscript, or an operator; `sign` if a minus belongs to what follows."""
    part = _single(tokens, token, sign)
    scripts = {}
    while part.operand and tokens and tokens[-1] in "_^":
        name, token = tokens.pop(), tokens.pop()
        if name in scripts:
            raise KeyError(name)
        two = len(token) == 2 and token.isalpha() and token not in SYMBOLS  # two indices
        scripts[name] = "".join(f"<mi>{letter}</mi>" for letter in token) if two else _script(tokens, token)
    if not scripts:
        return part
    name = {"_": "msub", "^": "msup"}.get("".join(scripts), "msubsup")
    return Part(f"<{name}>{_one(part.shown)}{''.join(_one(scripts[s]) for s in '_^' if s in scripts)}</{name}>")


def _script(tokens: list[str], token: str) -> str:
    part = _single(tokens, token, sign=True)
    return part.inner if token == "{" else part.shown


def _single(tokens: list[str], token: str, sign: bool) -> Part:
    if token == "sqrt":
        inner = _single(tokens, tokens.pop(), sign).inner
        if not inner:
            raise KeyError(token)
        return Part(f"<msqrt>{inner}</msqrt>")
    if token == "sum":
        return Part(f"<mo>{SYMBOLS[token]}</mo>")
    if token.isalpha():
        return Part(f"<mi>{SYMBOLS.get(token, token)}</mi>")
    if token[-1].isdigit():
        number, _, power = token.partition("e")
        times = "" if number == "1" else f"<mn>{number}</mn><mo>⋅</mo>"
        return Part(
            f"{times}<msup><mn>10</mn><mn>{power.replace('-', '−')}</mn></msup>" if power else f"<mn>{number}</mn>"
        )
    if token in CLOSED:
        inner = _row(tokens, CLOSED[token])
        return Part(
            f"<mrow><mo>{token}</mo>{inner}<mo>{CLOSED[token]}</mo></mrow>" if token != "{" else inner, inner=inner
        )
    if token in ")]}_^":
        raise KeyError(token)
    style = ' form="prefix"' if sign and token in ("-", "+-") else ' lspace="0" rspace="0"' if token == "/" else ""
    return Part(f"<mo{style}>{escape(SYMBOLS.get(token, token))}</mo>", operand=False)


def _one(elements: str) -> str:
    """Return elements as one."""
    return elements if re.fullmatch(r"<(m[in])>[^<]*</\1>", elements) else f"<mrow>{elements}</mrow>"
