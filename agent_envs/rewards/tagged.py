r"""The final answer in a text, without the markup around it: what is in the last `<answer>` tags, else in the last
`\boxed{}`, else what the last line says.

    <answer>**Osken**</answer>      so it is $\boxed{\text{B}}$.      **Answer:** (B)      The answer is `B`.
"""

from __future__ import annotations

import re

_TAG = re.compile(r"(?i)<(/?)answer>")
_AFTER = re.compile(r"(?is).*\banswers?\**(?: is| are|:)(?::|\*+(?=\s))*\s*(.{1,5000})")
_MARKED = re.compile(
    r"""(?sx)
    (?: ( \*{1,3} | _{1,3} | `{1,3} | \${1,2} | " ) ( (?: (?!\1) . )+ ) \1
    | \\\( ( (?: (?!\\\)) . )+ ) \\\)
    | \\ (?: [fm]?box(?:ed)? | text\w* | math\w+ ) \s? \{ ( [^{}]* (?: \{ [^{}]* \} [^{}]* )* ) \}
    | \( ( [^()]+ ) \)
    ) [.,]?"""
)
_LONGEST = 5000
_SEARCHED = 100_000  # characters at the end of a text in which a box is looked for
_LONGEST_BOX = 2000
_DEEPEST = 8  # layers of markup


def tagged_answer(text: str) -> str:
    """Return the answer that a text gives, "" if none; at most 5,000 characters of it.

    >>> tagged_answer("It is <answer>A</answer>, no: <answer> **B** </answer>")
    'B'
    >>> tagged_answer("I looked.\\nThe answer is B"), tagged_answer(r"So $\\boxed{\\text{B}}$ it is.")
    ('B', 'B')
    """
    for answer in (last_answer(text), boxed(text)):
        if answer is not None:
            return bare(answer[:_LONGEST])
    said = bare(text[-_LONGEST:].rstrip().rpartition("\n")[2])
    after = _AFTER.fullmatch(said)
    return bare(after[1] if after else said)


def last_answer(text: str) -> str | None:
    """Return the text between the last pair of answer tags, or None if there is no pair. Takes linear time.

    >>> last_answer("<answer>a</answer> or <Answer>b</Answer><answer>")
    'b'
    """
    answer = start = None
    for tag in _TAG.finditer(text):
        if not tag[1]:
            start = tag.end() if start is None else start
        elif start is not None:
            answer, start = text[start : tag.start()], None
    return answer


def boxed(text: str) -> str | None:
    r"""Return what the last complete \boxed{} of a text holds, or None.

    >>> boxed(r"so \boxed{1} or rather \boxed{\frac{1}{2}}."), boxed("none"), boxed(r"\boxed{open")
    ('\\frac{1}{2}', None, None)
    """
    text = text[-_SEARCHED:]
    opened: list[int] = []
    last: tuple[int, int] | None = None
    for brace in re.finditer(r"[{}]", text):
        if brace[0] == "{":
            opened.append(brace.start())
        elif opened:
            start = opened.pop()
            later = last is None or start > last[0]
            if (
                later
                and brace.start() - start <= _LONGEST_BOX
                and text.endswith(("\\boxed", "\\boxed ", "\\fbox"), 0, start)
            ):
                last = start, brace.start()
    return None if last is None else text[last[0] + 1 : last[1]].strip()


def bare(text: str) -> str:
    r"""Return a short answer without the Markdown, LaTeX, quotes or brackets that are around all of it.

    >>> bare("**B**."), bare(r"$\boxed{\text{(B)}}$"), bare("`Osken`"), bare("*a* and *b*"), bare("B (iron)")
    ('B', 'B', 'Osken', '*a* and *b*', 'B (iron)')
    """
    for _ in range(_DEEPEST):
        marked = _MARKED.fullmatch(text.strip())
        text = marked[marked.lastindex or 0] if marked else text
    return text.strip()
