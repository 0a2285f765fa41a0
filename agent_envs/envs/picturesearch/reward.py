"""Whether an answer about a picture is right: a code, one or several numbers, or an option.

The rule for released rows follows the benchmarks' own: the letter of the option (V*, https://github.com/penghao-wu/vstar;
HR-Bench, https://github.com/DreamMr/HR-Bench). The text of the option counts as well.
"""

from __future__ import annotations

import re

from agent_envs.datasets.picturesearch.generated.sheet import PictureTask

_NUMBERS = re.compile(r"(?<![0-9])-?[0-9]{1,20}")  # a line between two numbers is no sign
_OPTION = re.compile(r"[*`]*\(?([A-Z])\)?[*`]*[.:)]?[*`]*(?:\s+(.*))?", re.DOTALL)


def is_right(given: str, task: PictureTask) -> bool:
    """Return whether a text is the answer to a task and nothing but it; words around numbers do not count.

    >>> task = PictureTask("", "How many?", ("3", "10"), None)
    >>> is_right("3 stars and 10 cups", task), is_right("10, 3", task), is_right("3, 10, 11", task)
    (True, False, False)
    >>> is_right("k-7m.", task._replace(answers=("K7M",))), is_right("K7M or A4C", task._replace(answers=("K7M",)))
    (True, False)
    >>> glove = task._replace(answers=("B",), options=("rubber", "cotton"))
    >>> letters = task._replace(answers=("A",), options=("B", "A"))
    >>> is_right("A", letters), is_right("-3, 10", task)
    (True, False)
    >>> is_right("(B)", glove), is_right("b. Cotton", glove), is_right("cotton", glove), is_right("A or B", glove)
    (True, True, True, False)
    """
    if task.options:
        return _chosen(given.strip(), task.options) == task.answers[0]
    if not task.answers:
        return False
    if all(answer.isdecimal() for answer in task.answers):
        text = given.replace(",", "") if len(task.answers) == 1 else given
        return tuple(number.lstrip("0") or "0" for number in _NUMBERS.findall(text)) == task.answers
    return _bare(given) == _bare(task.answers[0])


def _bare(text: str) -> str:
    return "".join(re.findall(r"[A-Z0-9]+", text[:1000].upper()))


def _chosen(given: str, options: tuple[str, ...]) -> str:
    """Return the letter of the option that a text names, by letter or by its own text; "" if none or several."""
    letters = [chr(ord("A") + place) for place in range(len(options))]
    match = _OPTION.fullmatch(given[:1000].upper())
    if match is not None and match[1] in letters:
        own, after = options[letters.index(match[1])], match[2]
        if after is None or _words(after) == _words(own) or _bare(after) == _bare(own) != "":
            return match[1]
    for form in (_words, _bare):  # options may differ in punctuation alone
        named = [letter for letter, option in zip(letters, options, strict=True) if form(given) == form(option) != ""]
        if len(named) == 1:
            return named[0]
    return ""


def _words(text: str) -> str:
    return " ".join(text[:1000].upper().split())
