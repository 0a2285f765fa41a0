r"""Whether an answer equals the gold one: as single numbers here, and otherwise by math-verify in the sandbox.

    \boxed{\frac{12}{8}} and 3/2; \boxed{3, 7} and 7,3; \boxed{x \in [1, 2)} and [1,2)

math-verify (https://github.com/huggingface/Math-Verify) reads LaTeX with sympy. A hostile answer can keep that busy for
ever or eat the memory, so it runs behind the same walls as programs do; one that is stopped there counts as wrong.
"""

from __future__ import annotations

import functools
import importlib.util

from agent_envs.errors import BackendError, MissingExtraError
from agent_envs.rewards.math_answers import whole_number
from agent_envs.rewards.tagged import boxed
from agent_envs.sandbox import Sandbox

__all__ = ["answer_of", "equivalent", "need_math_verify"]

_LONGEST = 1000  # characters of an answer that are judged
_SECONDS = 10.0
# What stands in a box is read as one formula: of a text that is none, math-verify would take just a number. It drops
# \mathrm{...} as a unit, in a formula too, so constants are freed first; in 10\,000 it would multiply 10 by 000.
_JUDGE = r"""
import math_verify, re, warnings
warnings.simplefilter("ignore")
def read(name):
    text = re.sub(r"\\(?:mathrm|text|operatorname)\{([ei])\}", r"{\1}", open(name, encoding="utf-8").read())
    text = re.sub(r"(?<=\d)\\[, ](?=\d{3}(?!\d))|(?<=\d)\.(?!\d)|\\?\$", "", text)
    text = re.sub(r"(?<!\\)\s*[.,;]+$", "", " ".join(text.split()))
    formula, percent = re.fullmatch(r"(.*?)\s*(\\?%|percent|percentage|pct)?", text).groups("")
    found = math_verify.parse(f"${formula}${percent}", [math_verify.LatexExtractionConfig()], parsing_timeout=None)
    texts = [one for one in found if isinstance(one, str)]
    return "".join((texts or [formula])[0].split()) + percent, found if len(found) > len(texts) else None
(gold_text, gold), (answer_text, answer) = read("gold"), read("answer")
if gold is None or answer is None:
    print(gold_text == answer_text)
else:
    print(math_verify.verify(gold, answer, timeout_seconds=None))
"""


def answer_of(text: str) -> str | None:
    r"""Return the answer that a text gives in its last \boxed{}, or None if there is none.

    >>> answer_of("<answer>\\boxed{\\frac{1}{2}}</answer>"), answer_of("it is 5")
    ('\\frac{1}{2}', None)
    """
    found = boxed(text)
    return found if found else None


def equivalent(answer: str, gold: str, sandbox: Sandbox) -> bool:
    r"""Return whether two answers are the same.

    Raises:
        BackendError: The sandbox failed, or math-verify cannot be imported in it.
        MissingExtraError: The answers are no plain numbers, and math-verify is not installed.
    """
    if not gold:
        return False
    if answer == gold:
        return True
    number, gold_number = whole_number(answer), whole_number(gold)
    if number == gold_number is not None:
        return True
    if number and gold_number and "\\" not in answer + gold:
        return False
    if gold_number and importlib.util.find_spec("math_verify") is None:
        return False  # generated tasks need no extra: what is no number is no answer to them
    if len(answer) > _LONGEST:
        return False
    need_math_verify()
    return _verified(answer, gold, sandbox)


@functools.lru_cache(maxsize=4096)
def _verified(answer: str, gold: str, sandbox: Sandbox) -> bool:
    result = sandbox.run(_JUDGE, files={"gold": gold, "answer": answer}, timeout=_SECONDS, seed=0)
    if result.status == "error" and "ModuleNotFoundError" in result.stderr:
        raise BackendError("math-verify is installed, but the sandbox's interpreter cannot import it")
    return result.stdout.strip() == "True"


def need_math_verify() -> None:
    """Raise MissingExtraError if math-verify is not installed."""
    if importlib.util.find_spec("math_verify") is None:
        raise MissingExtraError("math-verify", extra="math")
