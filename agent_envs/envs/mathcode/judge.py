r"""Whether an answer equals the gold one: as single numbers here, otherwise by math-verify, in a sandbox of its own.

    \boxed{\frac{12}{8}} and 3/2; \boxed{3, 7} and 7,3; \boxed{x \in [1, 2)} and [1,2)

math-verify (https://github.com/huggingface/Math-Verify) reads LaTeX with sympy. A hostile answer can keep that busy for
ever or eat the memory, so it runs behind the same walls as programs do; one that is stopped there counts as wrong. It
needs the gold answer, so no policy's program runs in that sandbox.
"""

from __future__ import annotations

import functools
import importlib.util

from agent_envs.errors import BackendError, MissingExtraError
from agent_envs.per_process import PerProcess
from agent_envs.rewards.math_answers import whole_number
from agent_envs.sandbox.forked.host import ForkedSandbox
from agent_envs.sandbox.forked.modules import MATH_MODULES

_judge: PerProcess[ForkedSandbox] = PerProcess()
_LONGEST = 1000  # characters of an answer that are judged
_SECONDS = 10.0
_WARM_UP = r"""
import math_verify as m
targets = [m.LatexExtractionConfig(), m.ExprExtractionConfig()]
golds = (r"$\frac{1}{2}$", "$[1,2)$", r"$\{1,2\}$", "$x=5$", r"$\sqrt{2}+1$", r"$\begin{pmatrix}1\\2\end{pmatrix}$")
for gold in golds:
    read = m.parse(gold, targets, parsing_timeout=None)
    m.verify(read, read, timeout_seconds=None)
    m.verify(read, m.parse("0.5", targets, parsing_timeout=None), timeout_seconds=None)
"""
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


def equivalent(answer: str, gold: str) -> bool:
    r"""Return whether two answers are the same."""
    if not gold:
        return False
    if answer == gold:
        return True
    number, gold_number = whole_number(answer), whole_number(gold)
    if number and gold_number and (number == gold_number or "\\" not in answer + gold):
        return number == gold_number
    if len(answer) > _LONGEST or (gold_number and importlib.util.find_spec("math_verify") is None):
        return False  # generated tasks need no extra: what is no number is no answer to them
    need_math_verify()
    try:
        return _verified(answer, gold)
    except TimeoutError:
        return False


@functools.lru_cache(maxsize=4096)
def _verified(answer: str, gold: str) -> bool:
    """Ask the judge; a TimeoutError, which may be a busy machine's fault, is not kept."""
    result = _judge.get(None, _sandbox).run(_JUDGE, files={"gold": gold, "answer": answer}, timeout=_SECONDS, seed=0)
    if result.status == "timeout":
        raise TimeoutError
    return result.stdout == "True\n"


def _sandbox() -> ForkedSandbox:
    sandbox = ForkedSandbox(modules=(*MATH_MODULES, "math_verify"), warm_up=[_WARM_UP])
    if "math_verify" not in sandbox.modules():
        raise BackendError("math-verify is installed, but the sandbox's interpreter cannot import it")
    return sandbox


def need_math_verify() -> None:
    """Raise MissingExtraError if math-verify is not installed."""
    if importlib.util.find_spec("math_verify") is None:
        raise MissingExtraError("math-verify", extra="math")
