"""Scoring of short answers, against what the official scripts give, and the two action formats of search tasks.

1. The normaliser, exact match and F1 equal HotpotQA's hotpot_evaluate_v1.py, unicode and empty texts included; each
   data set has its own F1.
2. Aliases count, the best one; yes, no and noanswer only score by being equal.
3. The released format reward, term by term.
4. ReAct and Search-R1 actions, whole and broken.
"""

import dataclasses
import time

import gymnasium as gym
import pytest

from agent_envs.envs.qa.reward import qa_format
from agent_envs.messages import ParseFailure, ToolCall
from agent_envs.parsers import ReActParser, SearchR1Parser
from agent_envs.rewards.short_answers import exact_match, f1, normalize_answer, squad_f1, substring_match

OFFICIAL = [  # prediction, gold; normalised prediction, exact match and F1 as the official script has them
    ("The Eiffel Tower!", "eiffel tower", "eiffel tower", 1.0, 1.0),
    ("Anthem of the Theatre", "anthem theatre", "anthem of theatre", 0.0, 0.8),  # articles inside words stay
    ("well-known", "wellknown", "wellknown", 1.0, 1.0),
    ("", "", "", 1.0, 0.0),  # nothing in common is no overlap, though it is equal
    ("the", "", "", 1.0, 0.0),
    ("Paris", "", "paris", 0.0, 0.0),
    ("Yes, it is", "yes", "yes it is", 0.0, 0.0),
    ("no answer", "noanswer", "no answer", 0.0, 0.0),
    ("Straße", "STRASSE", "straße", 0.0, 0.0),  # lower case, not case folding
    ("İstanbul", "istanbul", "i̇stanbul", 0.0, 0.0),
    ("“quoted”", "quoted", "“quoted”", 0.0, 0.0),  # only ASCII punctuation goes
    ("3.5 million", "35 million", "35 million", 1.0, 1.0),  # the official script cannot tell
    ("tab\tnew\nline", "tab new line", "tab new line", 1.0, 1.0),
    ("to be or not to be", "be to", "to be or not to be", 0.0, 0.5),  # words count as often as both have them
    ("北京", "北京 市", "北京", 0.0, 2 / 3),
    ("a\u00a0cat", "cat", "cat", 1.0, 1.0),
    ("AN apple\x1c a day", "apple day", "apple day", 1.0, 1.0),
    ("the_end", "theend", "theend", 1.0, 1.0),
    ("cat cat", "cat", "cat cat", 0.0, 2 / 3),
]


@pytest.mark.parametrize(("prediction", "gold", "normal", "em", "overlap"), OFFICIAL)
def test_scores_equal_the_official_scripts(prediction, gold, normal, em, overlap):
    assert normalize_answer(prediction) == normal
    assert exact_match(prediction, gold) == em
    assert f1(prediction, gold) == pytest.approx(overlap)


def test_the_best_alias_counts_and_without_a_gold_nothing_is_right():
    golds = ("Paris", "the City of Light", "no")
    assert exact_match("city of light", golds) == f1("city of light", golds) == squad_f1("city of light", golds) == 1.0
    assert f1("in Paris", golds) == squad_f1("in Paris", golds) == pytest.approx(2 / 3)
    assert exact_match("x", ()) == f1("x", ()) == squad_f1("x", ()) == substring_match("x", ()) == 0.0


@pytest.mark.parametrize(
    ("env_id", "gold", "said", "score"),
    [
        ("HotpotQA", "yes", "yes it is", 0.0),
        ("TwoWikiMultihopQA", "yes", "yes it is", 0.0),
        ("MuSiQue", "yes", "yes it is", 0.5),
        ("HotpotQA", "The The", "the", 0.0),
        ("MuSiQue", "The The", "the", 1.0),
        ("MuSiQue", "Bath", "in Bath", 2 / 3),
        ("MuSiQue", "Bath", "the", 0.0),
    ],
)
def test_f1_is_the_data_sets_own(env_id, gold, said, score):
    env = gym.make(f"AgentR1/{env_id}-v0", reward="f1").unwrapped
    env.reset(options={"index": 0})
    env._task = dataclasses.replace(env.task, answers=(gold,))
    _, reward, _, _, info = env.step(f"<answer>{said}</answer>")
    assert reward == info["f1"] == pytest.approx(score)


@pytest.mark.parametrize(
    ("prediction", "gold", "score"),
    [
        ("It is in Paris, France.", "paris", 1.0),
        ("Paris", "Paris, France", 0.0),  # the other way round is no match
        ("eyesight", "yes", 1.0),  # as released: of characters, not words
        ("anything", "the", 0.0),  # nothing is left of the gold
        ("", "", 0.0),
    ],
)
def test_substring_match(prediction, gold, score):
    assert substring_match(prediction, gold) == score


CALL = '<think>Where?</think>\n<tool_call>{"name": "search", "arguments": {"query": "x"}}</tool_call>'
RIGHT = "<think>So.</think> <answer>in Paris</answer>"
WRONG = "<think>So.</think><answer>Rome</answer>"


@pytest.mark.parametrize(
    ("turns", "text", "reward"),
    [
        ([CALL, RIGHT], None, 1.0),  # 0.5 + 0.5, answer 1
        ([CALL, CALL, CALL, RIGHT], None, 1.0),  # format is at most 1
        ([RIGHT], None, 0.5),  # format 0.5 is enough for the answer to count
        ([CALL, WRONG], None, 0.0),
        ([CALL, WRONG], "Paris is a city", 0.2),  # the gold was found and not given
        ([CALL, "Paris"], None, -0.3),  # format 0.5, no answer, but the gold is in the text
        ([CALL], None, -0.5),
        (["Paris"], None, -1.0),
        ([], None, -1.0),
        ([CALL.replace("</think>", ""), "Paris"], None, -1.0),  # a tag is missing
        ([CALL.replace("Where?", "<think>"), "x"], None, -1.0),  # one is twice
        ([CALL + CALL, "x"], None, -1.0),
        (["<answer>Paris</answer><think>So.</think>"], None, -1.0),  # the order
        (["So. <think></think><answer>Paris</answer>"], None, -1.0),  # something before it
    ],
)
def test_the_released_format_reward(turns, text, reward):
    assert qa_format(turns, ("Paris",), text) == pytest.approx(reward)


# -- action formats --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name", "argument"),
    [
        ("search[High Plains]", "search", "High Plains"),
        ("Thought 1: I need it.\nAction 1: Search[ High Plains ]", "search", "High Plains"),
        ("Action: LOOKUP[eastern sector]", "lookup", "eastern sector"),
        ("search[one] no, search[two]", "search", "two"),  # the last one counts
        ("lookup[a [b] c]", "lookup", "a [b] c"),
        ("search[]", "search", ""),
        ("<think>finish[no]</think> search[x]", "search", "x"),
        ("finish[x\nsearch[y]", "search", "y"),  # the first is not closed in its line
    ],
)
def test_react_calls(text, name, argument):
    (call,) = ReActParser().parse(text).calls
    assert isinstance(call, ToolCall)
    assert (call.name, list(call.arguments.values())) == (name, [argument])
    assert call.raw in text


@pytest.mark.parametrize(
    "text", ["Paris", "search", "search[", "research[x]", "finish [x]", "search(x)", "]", "<answer>x"]
)
def test_react_says_what_it_expects(text):
    parsed = ReActParser().parse(text)
    (failure,) = parsed.calls
    assert isinstance(failure, ParseFailure)
    assert "search[entity], lookup[keyword] or finish[answer]" in failure.error
    assert parsed.text == ""


def test_react_answers():
    parsed = ReActParser().parse("Thought: So it is.\nFinish[1,800 to 7,000 ft]")
    assert (parsed.text, parsed.calls) == ("1,800 to 7,000 ft", ())
    assert "So it is." in parsed.reasoning


@pytest.mark.parametrize(
    ("text", "query", "answer"),
    [
        ("<think>hm</think><search> High Plains </search>", "High Plains", None),
        ("<search>one</search><search>two</search>", "one", None),  # the first counts
        ("<search>one</search><answer>two</answer>", "one", None),
        ("<answer>two</answer> <search>one</search>", None, "two"),
        ("<search><answer>x</answer>", None, "x"),  # the first complete pair
        ("<search>a\nb</search>", "a\nb", None),
        ("<think><search>a</search></think><answer>b</answer>", None, "b"),
    ],
)
def test_search_r1_actions(text, query, answer):
    parsed = SearchR1Parser().parse(text)
    if answer is None:
        (call,) = parsed.calls
        assert isinstance(call, ToolCall)
        assert (call.name, call.arguments) == ("search", {"query": query})
    else:
        assert (parsed.text, parsed.calls) == (answer, ())


@pytest.mark.parametrize(
    "text", ["Paris", "<search>x", "x</search>", "<answer>", "</answer><answer>", "< search>x</search>"]
)
def test_search_r1_says_what_it_expects(text):
    (failure,) = SearchR1Parser().parse(text).calls
    assert isinstance(failure, ParseFailure)
    assert "<search>query</search>" in failure.error


@pytest.mark.parametrize("piece", ["search[", "<search>", "<answer></search>", "</think>", "]" * 7])
def test_long_texts_are_judged_in_time(piece):
    text = piece * (1_000_000 // len(piece))
    begin = time.process_time()
    qa_format([text], ["Paris"], text)
    assert time.process_time() - begin < 5.0
