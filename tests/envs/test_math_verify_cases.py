"""MathCode's judge beside math-verify: on answers in the forms of public sets, and on its own test cases.

The cases are read from the package's source distribution: a `math_verify-*.tar.gz` in the folder of test data, or one
that pip downloads. Theirs find an answer in prose, ours judges what stands in a box; so those cases are compared that
leave no doubt about what would stand there.
"""

import ast
import importlib.metadata
import re
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agent_envs.envs.mathcode.judge import equivalent
from agent_envs.rewards.tagged import boxed

_FORMULA = re.compile(r"(?<!\\)\$\$?(.+?)(?<!\\)\$\$?|\\\[(.+?)\\\]|\\\((.+?)\\\)", re.DOTALL)
_USUAL = {"precision": 6, "strict": True, "allow_set_relation_comp": False}
_DIFFERENT = {
    "test_number_extraction": 3,  # a comma before one, two or four digits is no decimal point to ours
    "test_latex_notation": 2,  # "$ 9 $" is no formula to theirs, "9" in a box is an answer to ours
    "test_string_extraction": 1,  # 1 - 1/e and 1 + 1/e are the same to theirs, which drops \mathrm{e} as a unit
}

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


@pytest.fixture(scope="module")
def source(tmp_path_factory, request):
    """The source distribution of the installed math-verify."""
    pytest.importorskip("math_verify")
    version = importlib.metadata.version("math-verify")
    try:
        folder = request.getfixturevalue("data_dir")
    except pytest.skip.Exception:
        folder = tmp_path_factory.getbasetemp()
    found = sorted(folder.rglob(f"math_verify-{version}.tar.gz"))
    if found:
        return found[0]
    folder = tmp_path_factory.mktemp("source")
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", "math-verify", "-d", str(folder)]
    done = subprocess.run([*pip, f"math-verify=={version}"], capture_output=True, text=True, timeout=300)
    if done.returncode:
        pytest.skip(f"no math_verify-{version}.tar.gz in the test data, and none to download: {done.stderr[-200:]}")
    return next(folder.glob("*.tar.gz"))


def _cases(source: Path) -> Iterator[tuple[str, str, str, bool]]:
    """Yield the name of a test, gold text, answer and whether these are the same, of its parametrised rows."""
    with tarfile.open(source) as archive:
        for member in archive.getmembers():
            file = archive.extractfile(member) if re.search(r"/tests/test_\w+\.py$", member.name) else None
            functions = ast.walk(ast.parse(file.read())) if file is not None else ()
            for function in functions:
                for call in function.decorator_list if isinstance(function, ast.FunctionDef) else ():
                    try:
                        names, rows = [ast.literal_eval(argument) for argument in call.args]  # type: ignore[attr-defined]
                    except ValueError:  # no rows, or rows that are computed
                        continue
                    for row in rows:
                        said = dict(zip([name.strip() for name in names.split(",")], row, strict=True))
                        same = said.pop("expected", None) if "expected" in said else said.pop("result")
                        gold, answer = said.pop("gold", None), said.pop("pred")
                        if isinstance(gold, str) and all(_USUAL[name] == value for name, value in said.items()):
                            yield function.name, gold, answer, bool(same)


def _boxed(text: str) -> str | None:
    """Return what would stand in a box, or None if that is not clear."""
    if "\\boxed" in text:
        return boxed(text) or None if text.count("\\boxed") == 1 else None
    formulas = list(_FORMULA.finditer(text))
    if len(formulas) == 1 and not re.search(r"\d", text[formulas[0].end() :]):
        return next(filter(None, formulas[0].groups())).strip()
    return None if formulas or len(text) > 20 or "$" in text else text.strip()


@pytest.mark.slow
def test_answers_that_math_verify_tests(source):
    pairs = [(name, _boxed(gold), _boxed(answer), same) for name, gold, answer, same in _cases(source)]
    clear = [pair for pair in pairs if pair[1] is not None and pair[2] is not None]
    assert len(pairs) > 250 and len(clear) > 200

    with ThreadPoolExecutor(2) as pool:
        judged = list(pool.map(lambda pair: equivalent(pair[2], pair[1]), clear))
    wrong = [pair for pair, ours in zip(clear, judged, strict=True) if pair[3] != ours]
    assert Counter(name for name, *_ in wrong) == _DIFFERENT, wrong
