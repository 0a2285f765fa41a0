"""MathCode's judge beside math-verify, on answers in the forms of public sets."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from agent_envs.envs.mathcode.judge import equivalent

FORMS = r"""
18 | 1,080 | -7 | 0.5 | 6.25 | 72 | 204 | 025 | 34 | 10000019 | 144 | 27.0 | 1.5 | 2,500,000 | 7,3 | 2,-2
10, 20, 13300000 | 3, 5, 7 | (1,8), (8,1) | n=2, 3 | x=1 | y = 2x + 3 | x > 4 | 3:4 | \pm 3 | 1 \pm \sqrt{19} | (0,1]
[-2,7] | (6,31,-1) | (2,3) | \{1,2,3\} | x \in [-2,7] | (-\infty, 2) \cup (3, \infty) | \{x | x > 1\}
\left( 3, \frac{\pi}{2} \right) | \begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix} | \text{Evelyn} | True | 90^\circ
50\% | \frac{3}{4} | -\frac{1}{2} | \frac{3\sqrt{3}}{4} | \frac{n(n+1)}{2} | \frac{m v^2}{2} | -1./3 | \sqrt{51}
11\sqrt2 | 2^{51}+1 | p - q | 2k+2 | 6 - 5i | 10,\!080 | 5.4 \text{ cents} | 2516_8 | 4.5e33 | 2^{10} | e^{-2 t}
\ln 2 | \frac{1}{2}\arcsin(x) | \frac{1}{3}E_1+\frac{2}{3}E_2 | \log_2 7 | \frac{5}{2}\pi | x^2 - 5x + 6
3x + 4y = 12 | \sin^2 x | 1.6 \times 10^{-19} | a_n = 2n - 1
"""
EXPLAINED = {  # of gold and answer, whether they are the same to ours, and why math-verify says the contrary
    ("-1./3", "-1./3+1"): False,  # it reads -1 in both
    ("-1./3", "-1./4"): False,
    (r"\{x | x > 1\}", r"\{x|x>1\}"): True,  # it cannot read a set by a condition; the same text is the same
    (r"\{x | x > 1\}", r"\{x | x > 1\}+1"): False,  # it reads 1 in both
    (r"50\%", r"50\%+1"): False,  # it reads 50 in both
}


def _written(gold: str) -> Iterator[str]:
    """The same answer, written in other ways."""
    yield from (gold, gold.replace("\\frac", "\\dfrac"), gold.replace(" ", ""), f"${gold}$", rf"\displaystyle {gold}")
    if "left" not in gold:
        yield gold.replace("(", "\\left(").replace(")", "\\right)")
    parts = gold.split(", ")
    if len(parts) > 1 and not re.search(r"[(\[{]", gold):
        yield ", ".join(reversed(parts))  # the order is free


def _changed(gold: str) -> Iterator[str]:
    """Other answers: more, a part, another digit, a list."""
    yield from (f"{gold}+1", f"{gold}, 1000", "0")
    if "," in gold:
        yield gold.partition(",")[0].strip("([{\\ ")
    yield (
        re.sub(r"\d(?=\D*$)", lambda digit: str((int(digit[0]) + 1) % 8), gold)
        if re.search(r"\d", gold)
        else f"{gold} x"
    )


@pytest.mark.slow
def test_answers_in_the_forms_of_public_sets():
    math_verify = pytest.importorskip("math_verify")
    golds = re.split(r" \| (?!x > 1)|\n", FORMS.strip())
    pairs = [(gold, answer, True) for gold in golds for answer in dict.fromkeys(_written(gold))]
    pairs += [(gold, answer, False) for gold in golds for answer in dict.fromkeys(_changed(gold))]
    pairs.remove(("2516_8", "2516_1", False))  # math-verify reads no bases of numbers
    with ThreadPoolExecutor(2) as pool:
        judged = list(pool.map(lambda pair: equivalent(pair[1], pair[0]), pairs))
    assert [pair for pair, ours in zip(pairs, judged, strict=True) if ours != pair[2]] == []
    differing = {}
    for (gold, answer, _), ours in zip(pairs, judged, strict=True):
        if math_verify.verify(*(math_verify.parse(f"${text}$") for text in (gold, answer))) != ours:
            differing[gold, answer] = ours
    assert differing == EXPLAINED and len(EXPLAINED) <= len(pairs) // 100
