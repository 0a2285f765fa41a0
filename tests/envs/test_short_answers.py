r"""Answers in the forms that models write them, read by every reward of short answers.

1. Tags, a box, the last line; bold, code, LaTeX, quotes and brackets around all of an answer are no part of it.
2. A hostile text is read in time proportional to its length.
"""

import time

import pytest

from agent_envs.datasets.picturesearch.generated.sheet import PictureTask
from agent_envs.envs.picturesearch.reward import is_right
from agent_envs.envs.tableqa.reward import given_answers, same_answers
from agent_envs.rewards.tagged import bare, tagged_answer

WRITTEN = r"""{} **{}** *{}* ***{}*** __{}__ `{}` **`{}`** **{}**. ({}) "{}" ${}$ \({}\) \boxed{{{}}}
$\boxed{{\text{{{}}}}}$ \textbf{{({})}} $\mathrm{{{}}}$."""
PLACES = [
    "<answer>{}</answer>",
    "I looked.\n<ANSWER> {} </ANSWER>",
    "<answer>iron</answer> no: <answer>{}</answer>",
    "{}",
    "Iron is wrong.\n\n{}\n",
    "The answer is {}",
    "**Answer:** {}",
    "**Answer**: {}",
    "Final answer: {}",
    r"It is $\boxed{{{}}}$, not iron.",
]


@pytest.mark.parametrize("written", WRITTEN.split())
def test_markup_around_an_answer_is_no_part_of_it(written):
    choice = PictureTask("", "What is it?", ("B",), None, options=("wool", "velvet"))
    for answer, other in (("B", "A"), ("velvet", "wool")):
        assert bare(written.format(answer)) == answer
        for place in PLACES:
            if "\\boxed" in place and "\\boxed" in written:
                continue  # the inner box is the answer's
            text = place.format(written.format(answer))
            assert tagged_answer(text) == answer, text
            assert is_right(tagged_answer(text), choice)
            assert not is_right(tagged_answer(place.format(written.format(other))), choice)
            assert same_answers(given_answers(text), [answer]) and not same_answers(given_answers(text), [other]), text


@pytest.mark.parametrize("text", ["**B.** velvet", "**B**: velvet", "(B) velvet", "`B)` Velvet", "B. velvet"])
def test_a_letter_before_its_option(text):
    choice = PictureTask("", "What is it?", ("B",), None, options=("wool", "velvet"))
    assert is_right(text, choice) and not is_right(text.lower().replace("velvet", "wool"), choice)


@pytest.mark.parametrize(
    "text", ["*a* and *b*", "B (iron)", r"\text{a} or \text{b}", "5 * 3", "_", "**", "(a) (b)", "f(x)"]
)
def test_what_is_not_around_all_of_an_answer_stays(text):
    assert bare(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "(" * 200_000,
        "**" * 100_000,
        "_*" * 100_000,
        r"\text{" * 50_000,
        "<answer>" * 100_000,
        "answer is " * 20_000,
        "\\boxed{" * 50_000 + "}" * 50_000,
        "\\(" * 100_000,
        "<answer>" + " (a)" * 5000 + "</answer>",
        "<answer>" + "a;" * 3000 + "</answer>",
        "<answer>" + "[a]" * 3000 + "</answer>",
    ],
    ids=lambda text: text[:12],
)
def test_hostile_texts_are_read_in_linear_time(text):
    start = time.process_time()
    assert not same_answers(given_answers(text), ["Osken (x); Velmar", "1 day"])
    bare(text)
    assert time.process_time() - start < 2
