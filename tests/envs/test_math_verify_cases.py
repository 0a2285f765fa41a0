"""MathCode's judge beside the cases that math-verify tests itself with.

The cases are read from the package's source distribution: a `math_verify-*.tar.gz` in the folder of test data, or one
that pip downloads. Theirs find an answer in prose, ours judges what stands in a box; so those cases are compared that
leave no doubt about what would stand there.
"""

from __future__ import annotations

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

from agent_envs.envs.mathcode.judge import answer_of, equivalent

_FORMULA = re.compile(r"(?<!\\)\$\$?(.+?)(?<!\\)\$\$?|\\\[(.+?)\\\]|\\\((.+?)\\\)", re.DOTALL)
_USUAL = {"precision": 6, "strict": True, "allow_set_relation_comp": False}
_DIFFERENT = {
    "test_number_extraction": 3,  # a comma before one, two or four digits is no decimal point to ours
    "test_latex_notation": 2,  # "$ 9 $" is no formula to theirs, "9" in a box is an answer to ours
    "test_string_extraction": 1,  # 1 - 1/e and 1 + 1/e are the same to theirs, which drops \mathrm{e} as a unit
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
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
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "-q",
        "--no-deps",
        "--no-binary",
        "math-verify",
        "-d",
        str(folder),
    ]
    done = subprocess.run([*command, f"math-verify=={version}"], capture_output=True, text=True, timeout=300)
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
        return answer_of(text) if text.count("\\boxed") == 1 else None
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
