"""GSM8KCode, MathCode and TableQA, by scripted episodes.

1. Generated answers agree with the programs, which go another way; splits share no problem, and levels grow.
2. A program that fails is an observation; a stopped one says that the variables are gone; a snapshot goes on exactly;
   what a program prints or imports never ends the episode with an error.
3. Released rows are read by path; answers are equal as math-verify and the data sets' own rules say.
"""

import copy
import csv
import importlib.util
import io
import json
import os
import pickle
import time
from pathlib import Path

import gymnasium as gym
import pytest

from agent_envs.branching import restore, snapshot
from agent_envs.datasets.mathcode.generated.problems import GeneratedMath
from agent_envs.datasets.mathcode.rows import parse_row
from agent_envs.datasets.tableqa.generated.tables import GeneratedTables
from agent_envs.envs.mathcode.judge import equivalent
from agent_envs.envs.tableqa.reward import given_answers, same_answers
from agent_envs.errors import ConfigError, DataError
from agent_envs.rewards.math_answers import extract_answer
from agent_envs.sandbox import run
from agent_envs.sandbox.forked.host import ForkedSandbox
from agent_envs.sandbox.sandbox import Result
from tests.helpers import tool_call

GSM8K, MATH, TABLE = "AgentR1/GSM8KCode-v0", "AgentR1/MathCode-v0", "AgentR1/TableQA-v0"


def call(code: str) -> str:
    return tool_call("python", code=code)


@pytest.mark.parametrize("tasks", [GeneratedMath("test"), GeneratedTables("validation")])
def test_programs_agree_with_the_answers_that_were_made_another_way(tasks):
    for index in range(25):
        task = tasks[index]
        files = dict(task.files) if isinstance(tasks, GeneratedTables) else {}
        said = run(task.program, files=files).stdout
        if isinstance(tasks, GeneratedTables):
            assert same_answers(given_answers(said), task.answers), task
        else:
            assert extract_answer(said) == task.answer, task


def test_splits_share_no_problem_and_levels_grow():
    keys = [
        {GeneratedMath(split, level=1)[i].question for i in range(300)} for split in ("train", "validation", "test")
    ]
    assert not keys[0] & keys[1] and not keys[0] & keys[2] and not keys[1] & keys[2]
    rows = [len(dict(GeneratedTables("train", level=n)[0].files)["table.csv"].splitlines()) for n in (1, 3, 5)]
    assert 21 <= rows[0] <= 41 and 61 <= rows[1] <= 401 and 401 <= rows[2] <= 2001


def test_failures_are_observations():
    env = gym.make(GSM8K, code_timeout=0.3)
    env.reset(seed=0)
    observation, reward, terminated, _, info = env.step(call("x = 5\nprint(x)\n1 / 0"))
    assert observation.startswith("error: 5\nTraceback") and observation.endswith("ZeroDivisionError: division by zero")
    assert (reward, terminated, info["invalid_action"], info["tool_results"][0]["error"]) == (0.0, False, False, True)
    assert env.step(call("x * 2"))[0] == "10"
    assert env.step(call("while True: pass"))[0] == (
        "error: the program ran longer than 0.3 s and was stopped; the variables are gone"
    )
    assert "NameError" in env.step(call("x"))[0]
    assert env.step(call("y = 1"))[0] == "(no output)"
    assert env.step(call("open('/etc/passwd').read()"))[0].endswith("Operation not permitted: '/etc/passwd'")
    assert env.step("<tool_call>oops")[4]["invalid_action"]
    env.close()


@pytest.mark.parametrize(
    ("style", "action", "shown"),
    [
        ("retool", "I try.\n<code>\nprint(6 * 7)\n</code>", "\n<interpreter>\n42\n</interpreter>\n"),
        ("retool", "<code>\n```python\n6 * 7\n```\n</code> and more", "\n<interpreter>\n42\n</interpreter>\n"),
        ("retool", "<code>1 / 0</code>", "ZeroDivisionError: division by zero\n</interpreter>\n"),
        ("retool", "<code>1", "<code> is not closed"),
        ("mathtir", "I try.\n```python\nprint(6 * 7)\n```\n", "```output\n42\n```\n"),
        ("mathtir", "```python\nprint(1)", "not closed"),
    ],
)
def test_the_released_forms(style, action, shown):
    env = gym.make(MATH, style=style)
    env.reset(seed=0)
    observation, _, terminated, _, info = env.step(action)
    assert shown in observation and not terminated and info["tool_results"] == []
    assert env.unwrapped.tools == []
    env.close()


def test_a_snapshot_goes_on_exactly():
    env = gym.make(GSM8K)
    env.reset(seed=0)
    env.step(call("import random\nx = [random.random()]\nx"))
    point = snapshot(env)
    first = env.step(call("x.append(random.random())\nx"))[0]
    restore(env, point)
    assert env.step(call("x.append(random.random())\nx"))[0] == first
    assert pickle.loads(pickle.dumps(env.unwrapped)).step(call("x"))[0] == first
    assert copy.deepcopy(env.unwrapped).step(call("len(x)"))[0] == "2"
    env.close()


def test_no_program_makes_the_episode_a_failure_of_the_infrastructure():
    """What differs from run to run, then a package that was not used yet: nothing runs again."""
    env = gym.make(GSM8K)
    env.reset(seed=0)
    seen = [
        env.step(call(code))[0] for code in ("import time, os\nt = time.time(), os.urandom(8), id(object())\nt", "t")
    ]
    assert seen[0] == seen[1]
    for package in ("numpy", "pandas", "sympy"):
        if importlib.util.find_spec(package):
            assert env.step(call(f"import {package}\nt"))[0] == seen[0]
    assert pickle.loads(pickle.dumps(env)).step(call("t"))[0] == seen[0]
    env.close()


def test_a_sandbox_without_variables_is_described_as_such():
    assert "starts without variables" in gym.make(GSM8K, sandbox="http://127.0.0.1:9").unwrapped.instructions


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may read the memory of the sandbox's processes")
def test_the_gold_answer_is_never_where_a_policys_program_runs():
    pytest.importorskip("math_verify")
    gold = r"\frac{77123456789}{2}"
    env = gym.make(MATH, sandbox=(sandbox := ForkedSandbox()))
    env.reset(seed=0)
    env.step(call("x = 1"))
    assert not equivalent("y+1", gold)
    zygote = sandbox.zygote_pid()
    children = (Path(f"/proc/{zygote}/task/{zygote}/children")).read_text().split()
    for pid in (zygote, *children):
        with open(f"/proc/{pid}/mem", "rb", 0) as memory:
            for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
                start, end = (int(place, 16) for place in line.split()[0].split("-"))
                if line.split()[1].startswith("rw"):
                    memory.seek(start)
                    assert gold.encode() not in memory.read(end - start)
    env.close()
    sandbox.close()


# -- mathematics
def test_rewards_of_mathematics():
    env = gym.make(MATH, reward="released", data="generated")
    env.reset(options={"index": 0})
    gold = env.unwrapped.task.answer
    for text, reward, invalid in (
        (f"so \\boxed{{{gold}}}", 1.0, False),
        ("\\boxed{-1}", -1.0, False),
        (gold, -1.0, True),
    ):
        env.reset(options={"index": 0})
        _, paid, terminated, _, info = env.step(text)
        assert (paid, terminated, info["invalid_action"]) == (reward, True, invalid)
    env.close()


PAIRS = [  # answer, gold, whether they are the same
    ("3/2", r"\frac{12}{8}", True), (r"\frac12", "0.5", True), ("1,000", "1000", True), ("5", "6", False),
    (r"2\sqrt{2}", r"\sqrt{8}", True), ("[1, 2)", "[1,2)", True), ("(1, 2)", "[1,2)", False),
    (r"\{2, 1\}", r"\{1,2\}", True), ("x=5", "5", True), (r"90^\circ", "90", True), (r"\text{no}", "5", False),
    ("", "5", False), ("5", "", False), (r"\frac{1}{", "5", False), (r"50 \%", "50%", True),
    ("1", r"1 - \frac{1}{\mathrm{e}}", False), (r"1 - \frac{1}{e}", r"1 - \frac{1}{\mathrm{e}}", True),
    ("5", r"5 + \mathrm{foo}", False), ("2", r"\begin{cases} x+1 \\ 2\end{cases}", False),
    (r"5 \mathrm{~cm}", "5", True), ("7", "7,3", False), ("7, 9", "7,3", False), ("3,7", "7,3", True),
    ("2", "2,-2", False), (r"\pm 2", "2,-2", True), ("-1", "-1./3", False), ("-1/3", "-1./3", True),
    ("143+1", "144", True), ("144+1", "144", False), (r"10\,000", "10000", True), (r"\frac{5}{8}", "0.625", True),
    (r"\frac{2}{3}E_1+\frac{2}{3}E_2", r"\frac{1}{3}E_1+\frac{2}{3}E_2", False), ("(2,1)", "(1,2)", False),
    (r"\dfrac13E_1+\dfrac23E_2", r"\frac{1}{3}E_1+\frac{2}{3}E_2", True), ("18", "18,8", False), ("4", "4:3", False),
    ("1 or 2", "x=2, x=1", True), ("$3$ and $4$", "4,3", True), ("50", "50 percent.", True),
    ("x^2+2x+1", "(x+1)^2", True), (r"\frac{\pi}{2}", r"0.5\pi", True), ("2+3i", "3i+2", True),
    ("10^{3}", "1000", True), (r"\displaystyle \frac{3}{4}", r"\frac{3}{4}", True), ("3x+4y=12", "3x + 4y = 12", True),
    (r"\left(1,8\right), \left(8,1\right)", "(1,8), (8,1)", True), ("13300000, 20, 10", "10, 20, 13300000", True),
    ("-1./3+1", "-1./3", False), ("-1./4", "-1./3", False), (r"50\%+1", r"50\%", False),
    (r"\{x|x>1\}", r"\{x | x > 1\}", True), (r"\{x | x > 1\}+1", r"\{x | x > 1\}", False),  # the same text or none
    (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}", True),
    (r"\begin{pmatrix} 1 & 2 \\ 3 & 5 \end{pmatrix}", r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}", False),
    ("10000000000000001", "10000000000000000", False), ("0.333", r"\frac{1}{3}", False), ("[0,1]", "(0,1)", False),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "gold", "same"), PAIRS)
def test_equivalent_answers(answer, gold, same):
    pytest.importorskip("math_verify")
    assert equivalent(answer, gold) == same


def test_a_hostile_answer_is_judged_in_bounded_time(monkeypatch):
    pytest.importorskip("math_verify")
    monkeypatch.setattr("agent_envs.envs.mathcode.judge._SECONDS", 1.0)
    start = time.monotonic()
    assert not equivalent("9^{9^{9^{9}}}", "x+1")
    assert time.monotonic() - start < 15


def test_a_judgement_that_took_too_long_is_made_again(monkeypatch):
    pytest.importorskip("math_verify")
    pair = "17x+y", "y+17x"
    with monkeypatch.context() as busy:
        busy.setattr(ForkedSandbox, "run", lambda *_, **__: Result("timeout", "", "", 9.0))
        assert not equivalent(*pair)
    assert equivalent(*pair)


@pytest.mark.parametrize(
    ("row", "answer"),
    [
        ({"prompt": [{"role": "user", "content": "What?"}], "reward_model": {"ground_truth": "34"}}, "34"),
        ({"Problem": "What?", "Answer": 204}, "204"),
        ({"problem": "What?", "answer": "[1,2)"}, "[1,2)"),
        ({"problem": "What?", "solution": "So $\\boxed{\\frac{1}{2}}$."}, "\\frac{1}{2}"),
    ],
)
def test_released_rows_of_mathematics(row, answer):
    task = parse_row(row, "here", "x/0")
    assert (task.question, task.answer) == ("What?", answer)


@pytest.mark.parametrize(
    "row", [[], {}, {"problem": "a"}, {"problem": "a", "solution": "5"}, {"problem": 3, "answer": "5"}]
)
def test_bad_rows_of_mathematics(row):
    with pytest.raises(DataError, match="here"):
        parse_row(row, "here", "x/0")


def test_rows_are_played(tmp_path):
    pytest.importorskip("math_verify")
    (tmp_path / "aime.jsonl").write_text('{"problem": "What is half of one?", "answer": "\\\\frac{1}{2}"}\n')
    env = gym.make(MATH, data=str(tmp_path / "aime.jsonl"))
    assert env.reset()[0] == "What is half of one?" and env.unwrapped.expert_action() is None
    assert env.step("\\boxed{0.5}")[1] == 1.0
    env.close()


# -- tables
@pytest.fixture
def wiki(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "csv" / "204-csv").mkdir(parents=True)
    table = '"Year","Team","Note"\n"2003","Ost","a \\"b\\", c"\n"2004","West",""\n'
    (tmp_path / "csv" / "204-csv" / "590.csv").write_text(table)
    rows = "id\tutterance\tcontext\ttargetValue\nnt-0\twhich teams?\tcsv/204-csv/590.csv\tOst|West\n"
    (tmp_path / "data" / "training.tsv").write_text(rows)
    return tmp_path


def test_wiki_table_questions(wiki):
    for data, split in ((wiki, "train"), (wiki / "data" / "training.tsv", "train")):
        env = gym.make(TABLE, data=str(data), split=split)
        assert env.reset()[0].startswith("which teams?\n\ntable.csv has 2 rows and begins:\nYear,Team,Note\n2003,Ost,")
        shown = env.step(call("import csv\n[r['Note'] for r in csv.DictReader(open('table.csv'))]"))[0]
        assert shown == "['a \"b\", c', '']"
        assert env.step("<answer>west; Ost</answer>")[1] == 1.0
        env.close()
    with pytest.raises(ConfigError, match="no split 'tset'"):
        gym.make(TABLE, data=str(wiki), split="tset")
    for context in ("../../etc/passwd.csv", "/etc/x.csv", "csv/none.csv", "csv/204-csv/590.txt"):
        (wiki / "data" / "training.tsv").write_text(
            f"id\tutterance\tcontext\ttargetValue\nnt-0\twhich?\t{context}\tOst\n"
        )
        with pytest.raises(DataError, match="line 2"):
            gym.make(TABLE, data=str(wiki))


def test_tabmwp(tmp_path):
    row = {"question": "How many?", "table": "Day | Number\nMonday | 5", "answer": "5", "unit": None, "choices": None}
    titled = {**row, "table_title": "Cups sold", "unit": "fluid ounces"}
    rows = {"1": row, "2": {**row, "choices": ["5", "6"]}, "3": titled}
    (tmp_path / "problems_train.json").write_text(json.dumps(rows))
    env = gym.make(TABLE, data=str(tmp_path / "problems_train.json"))
    assert env.unwrapped.num_tasks == 3
    env.reset(options={"index": 1})
    assert "Choose one of: 5, 6." in env.unwrapped.task.question
    assert list(csv.reader(io.StringIO(dict(env.unwrapped.task.files)["table.csv"]))) == [
        ["Day", "Number"],
        ["Monday", "5"],
    ]
    assert env.step("It is\n5.")[1] == 1.0
    for answer, reward in (("5", 1.0), ("5 Fluid ounces", 1.0), ("5 ounces", 0.0), ("6 fluid ounces", 0.0)):
        assert "Cups sold" in env.reset(options={"index": 2})[0]
        assert env.step(f"<answer>{answer}</answer>")[1] == reward
    env.close()


@pytest.mark.parametrize(
    ("given", "gold", "same"),
    [
        ("<answer>1,200</answer>", ("1200.0",), True),
        ("The answer is Óskar", ("oskar",), True),
        ("a; b", ("b", "a"), True),
        ("a", ("a", "b"), False),
        ("a; b; c", ("a", "b"), False),
        ("'x' (note)", ("'x'",), True),
        ("", ("a",), False),
        ("1/2", ("0.5",), True),
        ("12-13", ("12–13",), True),
        ("White; green", ("White; green",), True),  # a gold value that holds the separator
        ("c; a; b", ("a; b", "c"), True),
        ("b; a; c", ("a; b", "c"), False),
        ("White", ("White; green",), False),
        ("18", ("18,8",), False),  # a part of a number
        ("18,8", ("18,8",), True),
        ("5", ("5:19.35",), False),
        ("17.0", ("17 years",), True),  # canonical values
        ("17 months", ("17 years",), False),
        ("17 years", ("17",), False),
        ("20", ("20 km walk",), False),
        ("202", ("202 (estimate)",), True),
        ("1.9821985E7", ("19821985",), True),
        ("1995-01-26", ("January 26, 1995",), True),
        ("26 Jan. 1995", ("January 26, 1995",), True),
        ("1995-01-27", ("January 26, 1995",), False),
        ("xxxx-08-31", ("August 31",), True),
        ("2008-07-xx", ("July 2008",), True),
        ("1936-xx-xx", ("1936",), True),
        ("May", ("5 May",), False),
        ("Osken", ("Osken†[1]",), True),  # footnotes, details, quotes
        ("Osken*", ("Osken [note 2]",), True),
        ("Japan; South Korea", ("Japan (JPN)", "South Korea (KOR)"), True),
        ("Dig Me Out", ('"Dig Me Out"',), True),
        ("(hello)", ("(hello)",), True),
        ("- Ost\n- West", ("West", "Ost"), True),  # a list
        ("1. FC Koln", ("1. FC Köln",), True),
        ("12/0", ("12/0",), True),
    ],
)
def test_answers_over_tables(given, gold, same):
    given = given if "answer" in given else f"<answer>{given}</answer>"
    assert same_answers(given_answers(given), gold) == same
