"""Rows of the processed data releases, read by the environments as they are.

1. A question's gold answers are the ground truth and the aliases, each once, in this order; every one scores 1.
2. The order of the fields does not matter, and a folder of several data sets serves each environment its own.
3. Rows without paragraphs, papers or gold papers say which argument gives them.
4. A single file answers to the split that its name or its rows say.
5. Passages without an id are numbered, and indexed as "title text".
6. Rows say which of a folder's houses a split has, and in which order; none leads out of the folder.
7. A shop's goals come from rows, in their splits; what rows leave out is the product's.
"""

import json
import re
import shutil
import sqlite3
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import agent_envs  # noqa: F401  (registers the ids)
from agent_envs.cli.main import main
from agent_envs.datasets.alfworld.generate import generate_alfworld
from agent_envs.datasets.gsm8k.rows import gsm8k_rows
from agent_envs.datasets.mathcode.rows import math_rows
from agent_envs.datasets.papersearch.rows import query_rows
from agent_envs.datasets.prepare import prepare
from agent_envs.datasets.qa.rows import qa_rows
from agent_envs.datasets.scienceworld import science_rows
from agent_envs.errors import ConfigError, DataError
from agent_envs.retrieval import BM25Retriever, DenseRetriever, document_title, open_retriever
from agent_envs.tasks import read_rows
from tests.helpers import write_rows

pytest.importorskip("pyarrow")
ENVS = {"hotpotqa": "AgentR1/HotpotQA-v0", "2wiki": "AgentR1/TwoWikiMultihopQA-v0", "musique": "AgentR1/MuSiQue-v0"}
SOLUTION = "He has 3 * 400 = $<<3*400=1200>>1,200 more.\n#### 1,200"


def verl_row(question: str, truth: Any, /, **extra: Any) -> dict[str, Any]:
    prompt = [{"role": "user", "content": question}]
    return {
        "data_source": "made", "prompt": prompt, "reward_model": {"ground_truth": truth, "style": "rule"},
        "extra_info": {"index": 0, **extra},
    }  # fmt: skip


def write(path: Path, *rows: dict[str, Any]) -> Path:
    return write_rows(path, list(rows))


@pytest.fixture
def release(data_dir):
    return data_dir / "agentr1_release"


@pytest.mark.parametrize(
    ("dataset", "split", "file"),
    [
        ("hotpotqa", "validation", "validation"),
        ("hotpotqa", "musique_validation", "musique_validation"),
        ("2wiki", "validation", "2wikimultihopqa_validation"),
        ("musique", "validation", "musique_validation"),
    ],
)
def test_every_gold_of_a_released_question_scores(release, dataset, split, file, tmp_path):
    (tmp_path / "corpus.jsonl").write_text('{"title": "a", "text": "b"}\n')
    folder = release / "hotpotqa"
    env = gym.make(ENVS[dataset], data=folder, split=split, corpus=tmp_path / "corpus.jsonl").unwrapped
    rows = [row for row, _ in read_rows(folder / f"{file}.parquet")]
    assert len(env.tasks) == len(rows)
    for index, row in enumerate(rows):
        extra = row["extra_info"]
        golds = list(dict.fromkeys([row["reward_model"]["ground_truth"], *extra.get("answers", [])]))
        observation, info = env.reset(options={"index": index})
        assert (observation, info["split"], env.task.answers) == (row["prompt"][0]["content"], split, tuple(golds))
        assert (env.task.question_type, env.task.level) == (extra.get("type", ""), extra.get("level", ""))
        for gold in golds if index < 20 else golds[:1]:
            env.reset(options={"index": index})
            assert env.step(f"<ANSWER>{gold}</ANSWER>")[1:3] == (1.0, True)
    assert qa_rows(dataset, str(folder / f"{file}.parquet"), "validation")[0].answers == env.tasks[0].answers


def test_golds_are_deduplicated_in_order(tmp_path):
    rows = [verl_row("Which?", "b", answers=["a", "b", " ", "c"]), verl_row("Is it?", "yes", answers=["yes"])]
    path = write(tmp_path / "train.parquet", *rows)
    assert [task.answers for task in qa_rows("hotpotqa", str(path))] == [("b", "a", "c"), ("yes",)]
    path = write(tmp_path / "lists.parquet", verl_row("Which?", ["b", "a"]))  # as agentr1 prepare writes trainers' rows
    assert qa_rows("hotpotqa", str(path))[0].answers == ("b", "a")
    for row, problem in (
        (verl_row("Which?", None), "row 1: the answer is empty"),
        (verl_row(" ", "a"), "row 1: the user message of 'prompt': expected text under 'content'"),
        (verl_row("Which?", "a", answers="a"), "row 1: expected a list under 'answers'"),
        (verl_row("Which?", "a") | {"prompt": "Which?"}, "row 1: expected a list under 'prompt'"),
    ):
        with pytest.raises(DataError, match=problem):
            qa_rows("hotpotqa", str(write(tmp_path / "bad.parquet", row)))


@pytest.mark.parametrize("engine", ["bm25", "lucene"])
def test_the_corpus_of_a_released_folder_is_found(tmp_path, engine):
    if engine == "lucene":
        pytest.importorskip("pyserini")
    write(tmp_path / "hotpotqa" / "validation.parquet", verl_row("Who is mayor of Korvath?", "Orvel"))
    env = gym.make(ENVS["hotpotqa"], data=tmp_path / "hotpotqa", split="validation", retriever=engine).unwrapped
    with pytest.raises(ConfigError, match=r"have no paragraphs to search: name a corpus.* or a retriever="):
        env.reset()
    passages = [{"title": "Dorn", "text": "A town."}, {"title": "Korvath", "text": "Its mayor is Orvel."}]
    corpus = tmp_path / "hotpotqa_corpus" / "hpqa_corpus.jsonl"
    corpus.parent.mkdir()
    corpus.write_text("".join(json.dumps(passage) + "\n" for passage in passages))
    env.reset()
    page = env.step('<tool_call>{"name": "search", "arguments": {"query": "Korvath"}}</tool_call>')[0]
    assert page.startswith("[1] Korvath\nIts mayor is Orvel.")
    if engine == "bm25":  # the passages may be in the rows' folder, and no split is made of them
        corpus.rename(tmp_path / "hotpotqa" / corpus.name)
        gym.make(ENVS["hotpotqa"], data=tmp_path / "hotpotqa", split="validation").reset()
        with pytest.raises(ConfigError, match=r"no split 'test'\. There are: 'validation'"):
            gym.make(ENVS["hotpotqa"], data=tmp_path / "hotpotqa", split="test")


def test_passages_without_an_id_are_numbered(tmp_path):
    path = tmp_path / "hpqa_corpus.jsonl"
    path.write_text('{"title": "Dorn", "text": "A town."}\n\n{"title": "", "text": "Korvath is old."}\n')
    retriever = open_retriever(path)
    assert [retriever.search(word, 1)[0][0] for word in ("town", "korvath")] == ["0", "1"]
    assert document_title(retriever.document("0")) == ("Dorn", "A town.")
    encoded = []
    DenseRetriever.build(
        path_rows := [row for row, _ in read_rows(path)], lambda texts: encoded.extend(texts) or [[1.0]] * len(texts)
    )
    assert list(dict.fromkeys(encoded)) == ["Dorn A town.", "Korvath is old."]
    assert BM25Retriever.build(path_rows).search("town", 1) == retriever.search("town", 1)
    path.write_text('{"contents": "no id"}\n')
    with pytest.raises(DataError, match="line 1: 'id' must be a non-empty string"):
        open_retriever(path)


def test_queries_without_right_papers(release, data_dir, tmp_path):
    tasks = query_rows(str(release / "pasa"))
    rows = [row for row, _ in read_rows(release / "pasa" / "train.parquet")]
    assert [(task.query, task.titles) for task in tasks] == [(row["prompt"][0]["content"], ()) for row in rows]
    data, corpus = release / "pasa" / "train.parquet", data_dir / "papersearch" / "spar_bench_15.jsonl"
    with pytest.raises(ConfigError, match=r"selector='gold' has to know the right papers.* use another"):
        gym.make("AgentR1/PaperSearch-v0", data=data, corpus=corpus).reset()
    with pytest.raises(DataError, match="no papers in .*pass papers with corpus=, or use another backend="):
        gym.make("AgentR1/PaperSearch-v0", data=data, selector="lexical").reset()
    env = gym.make("AgentR1/PaperSearch-v0", data=data, corpus=corpus, selector="lexical")
    assert env.reset(options={"index": 0})[0] == rows[0]["prompt"][0]["content"]
    search = {"name": "search", "arguments": {"query": "image retrieval"}}
    *_, info = env.step(f"<tool_call>{json.dumps(search)}</tool_call>")
    assert info["pool"] > 0 and info["score"] == 0.0
    for row in ({"question": "Any on parsing?", "answer": []}, {"query": "Any on parsing?", "titles": [], "id": "q1"}):
        (tmp_path / "dev.jsonl").write_text(json.dumps(row) + "\n")
        with pytest.raises(DataError, match="line 1: the query has no answers"):  # rows that should name them
            query_rows(str(tmp_path), "dev")


def test_word_problems_of_both_releases(tmp_path):
    extra = {"split": "train", "answer": SOLUTION, "question": "How much more?"}
    april = verl_row("How much more? Think step by step.", "1200", **extra) | {"ability": "math"}
    july = verl_row("How much more?\n\nThink.", "1200", **extra, ground_truth="1200")
    july |= {"question": "How much more?", "ground_truth": "1200"}
    kwargs = {"env_type": "tool", "tools": ["calc_gsm8k_reward"], "tools_kwargs": {"ground_truth": "1200"}}
    tool = april | {"agent_name": "agent_env_loop", "env_kwargs": json.dumps(kwargs)}
    tool["prompt"] = [{"content": "You are good at maths.", "role": "system"}, *april["prompt"]]
    for row in (april, july, tool):
        (task,) = gsm8k_rows(write(tmp_path / "rows.parquet", row))
        assert (task.question, task.answer, task.solution) == ("How much more?", "1200", SOLUTION)
    env = gym.make("AgentR1/GSM8KTool-v0", data=tmp_path / "rows.parquet")
    assert env.reset()[0] == "How much more?" and env.step("#### 1200")[1] == 1.0
    with pytest.raises(DataError, match="row 1: expected text under 'question'"):
        gsm8k_rows(write(tmp_path / "rows.parquet", verl_row("How much more?", "1200", split="train")))


def test_a_single_file_is_the_split_that_it_says(release, tmp_path):
    row = verl_row("Which?", "a", split="valid_seen")
    path = write(tmp_path / "rows.parquet", row)
    for split, name in (("valid_seen", "valid_seen"), ("train", "all"), ("all", "all"), ("rows", "rows")):
        assert qa_rows("hotpotqa", str(path), split).split == name
    with pytest.raises(ConfigError, match="a single file, whose split is 'all', and 'rows', 'valid_seen' by its name"):
        qa_rows("hotpotqa", str(path), "test")
    rows = release / "scienceworld" / "test_in_train.parquet"
    env = gym.make("AgentR1/ScienceWorld-v0", data=rows, split="test_in_train").unwrapped
    assert len(env.tasks) == 100 and env.tasks.split == "test_in_train"
    task = {"task_name": "boil", "variation_idx": 3}
    for extra in (None, {"index": "boil:3", "task_name": None, "variation_idx": None}):  # its truth says it
        path = write(tmp_path / "test.parquet", {**verl_row("Boiling", task), "extra_info": extra})
        assert gym.make("AgentR1/ScienceWorld-v0", data=path, split="test").unwrapped.tasks[0].variation == 3
    path = write(tmp_path / "hub" / "train-00000-of-00001.parquet", row)
    assert qa_rows("hotpotqa", str(path), "valid_seen").split == "valid_seen"


def _house_rows(folder: Path, games: list[str], name: str = "train") -> Path:
    rows = [
        verl_row("put a mug in a cabinet", {"success": None}, game_relative_path=game, split=name) for game in games
    ]
    return write(folder / f"{name}.parquet", *(row | {"data_source": f"alfworld_{name}"} for row in rows))


@pytest.fixture
def houses(tmp_path):
    """A folder of the release's form, whose rows name three of four games, and the games in the rows' order."""
    generate_alfworld(tmp_path / "games", 4)
    games = sorted(path.relative_to(tmp_path / "games").as_posix() for path in tmp_path.rglob("game.tw-pddl"))
    chosen = [games[3], games[0], games[2]]
    _house_rows(tmp_path, chosen)
    _house_rows(tmp_path, games[1:2], "valid_seen")
    return tmp_path, chosen


@pytest.mark.parametrize("packed", [False, True])
def test_rows_say_which_houses_a_split_has(houses, packed, tmp_path_factory):
    folder, games = houses
    if packed:
        shutil.make_archive(str(folder / "games"), "zip", folder, "games")
        shutil.rmtree(folder / "games")
        with pytest.raises(DataError, match=r"agentr1 prepare alfworld --from .* takes them from games\.zip"):
            gym.make("AgentR1/ALFWorld-v0", data=str(folder)).reset()
        folder = prepare("alfworld", str(folder), tmp_path_factory.mktemp("prepared") / "alfworld")
    env = gym.make("AgentR1/ALFWorld-v0", data=str(folder))
    played = [env.reset(options={"index": index})[1]["task_id"] for index in range(3)]
    assert played == [game.removesuffix("/game.tw-pddl") for game in games]
    assert len(env.unwrapped.tasks) == 3
    assert len(gym.make("AgentR1/ALFWorld-v0", data=str(folder), split="validation").unwrapped.tasks) == 1


def test_a_file_of_house_rows_is_a_split_of_its_own(houses):
    folder, games = houses
    for file, split, name in (("train", "train", "all"), ("valid_seen", "all", "all")):
        env = gym.make("AgentR1/ALFWorld-v0", data=str(folder / f"{file}.parquet"), split=split).unwrapped
        assert (len(env.tasks), env.tasks.split) == (len(games) if file == "train" else 1, name)
        assert env.reset(options={"index": 0})[1]["success"] is False
    with pytest.raises(ConfigError, match="has no split 'valid_seen'"):
        gym.make("AgentR1/ALFWorld-v0", data=str(folder / "train.parquet"), split="valid_seen").reset()


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("../outside/task/trial/game.tw-pddl", "within games/"),
        ("/etc/passwd", "within games/"),
        ("train/../train/game.tw-pddl", "within games/"),
        ("link/trial/game.tw-pddl", "within games/"),
        ("train/task/trial/traj_data.json", "within games/"),
        ("train/task/trial/game.tw-pddl", "there is no game"),
        ("train/a\0b/game.tw-pddl", "within games/"),
        (f"train/{'a' * 300}/game.tw-pddl", "within games/|there is no game"),
        (None, "game_relative_path"),
    ],
)
def test_a_row_names_a_house_within_its_folder(houses, named, message):
    folder, games = houses
    (folder / "outside").mkdir()
    shutil.copytree((folder / "games" / games[0]).parent, folder / "outside" / "trial")
    (folder / "games" / "link").symlink_to(folder / "outside")
    _house_rows(folder, [named])
    with pytest.raises(DataError, match=message):
        gym.make("AgentR1/ALFWorld-v0", data=str(folder)).reset()


def test_a_file_of_rows_beside_the_original_folders_says_nothing(houses):
    folder, _ = houses
    (folder / "games").rename(folder / "json_2.1.1")
    for place in (folder, folder / "json_2.1.1"):
        _house_rows(place, ["nothing"])
        assert len(gym.make("AgentR1/ALFWorld-v0", data=str(place)).unwrapped.tasks) == 4
    (folder / "json_2.1.1").rename(folder / "elsewhere")
    with pytest.raises(DataError, match="has no games: expected the folders .* or games/ beside files of rows"):
        gym.make("AgentR1/ALFWorld-v0", data=str(folder)).reset()


def test_a_release_is_prepared_where_it_lies(houses, release, tmp_path, capsys):
    folder, _ = houses
    assert main(["prepare", "alfworld", "--source", "modelscope", "--from", str(folder / "games")]) == 2
    assert main(["prepare", "alfworld", "--source", "modelscope", "--from", str(folder)]) == 0
    assert capsys.readouterr().out == f"{folder}\n"
    for task in ("hotpotqa", "2wiki", "musique", "papersearch", "webshop", "scienceworld"):
        assert main(["prepare", task, "--source", "modelscope", "--from", str(release)]) == 0
    printed = [Path(line).name for line in capsys.readouterr().out.split()]
    assert printed == [*["hotpotqa"] * 3, "pasa", "webshop", "scienceworld"]
    row = verl_row("papers on ants", None) | {"data_source": "bytedance/pasa"}
    rows = write(tmp_path / "own folder" / "pasa" / "train.parquet", row).parent
    asked = write(
        rows.parent / "corpus" / "hotpotqa" / "train.parquet",
        verl_row("Ants?", "six") | {"data_source": "hotpotqa_distractor"},
    )
    assert prepare("hotpotqa", str(rows.parent), source="modelscope") == asked.parent  # where the scripts have it
    assert main(["prepare", "papersearch", "--source", "modelscope", "--from", str(rows.parent)]) == 0
    assert capsys.readouterr().out == f"{rows}\n"
    write(rows / "test.parquet", {**row, "reward_model": "none"})
    assert main(["prepare", "papersearch", "--source", "modelscope", "--from", str(rows)]) == 2
    assert "test.parquet, row 1: expected an object under 'reward_model'" in capsys.readouterr().err


def test_what_a_part_of_the_data_lacks_is_said(houses, release, tmp_path, caplog):
    for task, said in (
        ("hotpotqa", "train 0 of 90447, validation 60 of 7405, 2wikimultihopqa_validation 60 of 12576, "),
        ("musique", "has of its rows: musique_validation 60 of 2417"),
        ("scienceworld", "test 0 of 1819"),
        ("webshop", "train 60 of 6710, test 60 of 200"),
    ):
        prepare(task, str(release), source="modelscope")
        assert said in caplog.records[-1].getMessage()
    assert not any("test_in_train" in record.getMessage() for record in caplog.records)  # all 100 of it
    prepare("alfworld", str(houses[0] / "games"), tmp_path / "houses")
    assert "no split valid_seen and no split valid_unseen" in caplog.records[-1].getMessage()


WANTED = {"instruction": "a mug", "attributes": ["red"], "price_upper": 9.0, "goal_options": []}


@pytest.mark.parametrize(
    ("task", "source", "row", "message"),
    [
        ("scienceworld", "scienceworld_train", ("Fly", {"task_name": "fly", "variation_idx": 1}), ".* no task 'fly'"),
        ("webshop", "webshop_small_train", ("a mug", {**WANTED, "asin": None}), "expected text under 'asin', got None"),
        ("hotpotqa", "hotpotqa_distractor", ("Who?", ""), "the answer is empty"),
        ("musique", "musique", ("Who?", None), "the answer is empty"),
        ("papersearch", "bytedance/pasa", ("Ants?", [["a"]]), "expected a list of strings under 'titles'"),
    ],
)
def test_released_rows_are_read_before_their_folder_is_named(task, source, row, message, tmp_path, capsys):
    write(tmp_path / "train.parquet", verl_row(*row, goal_index=1) | {"data_source": source})
    assert main(["prepare", task, "--source", "modelscope", "--from", str(tmp_path)]) == 2
    assert re.search(f"train.parquet, row 1: {message}", capsys.readouterr().err)


def test_released_houses_are_looked_for(houses, capsys):
    folder, _ = houses
    _house_rows(folder, ["train/a/b/game.tw-pddl"])
    assert main(["prepare", "alfworld", "--source", "modelscope", "--from", str(folder)]) == 2
    assert "train.parquet, row 1: there is no game 'train/a/b/game.tw-pddl'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("read", "source", "message"),
    [
        (partial(qa_rows, "2wiki"), "hotpotqa_distractor", "a row of 2wiki, got one of hotpotqa ('hotpotqa_dis"),
        (partial(qa_rows, "musique"), "2wikimultihopqa", "a row of musique, got one of 2wiki"),
        (partial(qa_rows, "hotpotqa"), "openai/gsm8k", "a row of hotpotqa or 2wiki or musique, got one of gsm8k"),
        (query_rows, "hotpotqa_distractor", "a row of papersearch, got one of hotpotqa"),
        (gsm8k_rows, "bytedance/pasa", "a row of gsm8k, got one of papersearch"),
        (math_rows, "openai/gsm8k", "a row of mathcode, got one of gsm8k"),
        (science_rows, "webshop_full_test", "a row of scienceworld, got one of webshop"),
        (lambda data: gym.make("AgentR1/WebShop-v0", goals=data).reset(), "alfworld_train", "a row of webshop, got"),
    ],
)
def test_rows_of_another_data_set_are_refused(read, source, message, tmp_path):
    """But HotpotQA's environment plays those of the other two."""
    row = verl_row("Who?", "Orvel", question="Who?", answer="#### 1", task_name="boil", variation_idx=1)
    path = write(tmp_path / "train.parquet", row | {"data_source": source})
    with pytest.raises(DataError, match=re.escape(f"train.parquet, row 1: expected {message}")):
        read(str(path))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["hotpotqa", "--source", "modelscope"], "pass its folder: --source modelscope --from FOLDER"),
        (["gsm8k", "--source", "modelscope", "--from", "."], "data release is read for"),
        (["webshop", "--source", "huggingface"], "not on Hugging Face"),
        (["hotpotqa", "--source", "modelscope", "--from", "pasa"], "no rows of hotpotqa, .*: got .'bytedance/pasa'"),
        (["papersearch", "--source", "modelscope", "--from", "hotpotqa"], "no rows of papersearch"),
        (["hotpotqa", "--source", "modelscope", "--from", "hotpotqa", "--out", "x"], "leave out --out"),
        (["scienceworld"], "scienceworld needs no files: data='generated' has the released tasks"),
        (["scienceworld", "--source", "huggingface"], "needs no files"),
        (["textworld"], "task must be one of"),
        (["2wiki", "--from", "hotpotqa"], "add --source modelscope"),
        (["musique", "--from", "hotpotqa/musique_validation.parquet"], "add --source modelscope"),
    ],
)
def test_sources_that_have_no_such_data_are_refused(arguments, message, release, monkeypatch, capsys):
    monkeypatch.chdir(release)
    assert main(["prepare", *arguments]) == 2
    assert re.search(message, capsys.readouterr().err)


def test_released_goals_are_played_in_their_splits(release, data_dir):
    """The products are the original's, and the goal's own satisfies it at least in type and attributes."""
    shop = {"data": str(data_dir / "webshop"), "goals": str(release / "webshop"), "site": "agentr1"}
    for split in ("train", "test"):
        rows = [row for row, _ in read_rows(release / "webshop" / f"{split}.parquet")]
        env = gym.make("AgentR1/WebShop-v0", split=split, max_episode_steps=50, **shop)
        assert len(env.unwrapped.tasks) == len(rows)
        goals = str(release / "webshop" / f"{split}.parquet")
        alone = gym.make("AgentR1/WebShop-v0", split=split, **{**shop, "goals": goals})
        assert alone.unwrapped.tasks[0].goal == env.unwrapped.tasks[0].goal
        for index in range(0, len(rows), 20):
            number = rows[index]["extra_info"]["goal_index"]
            assert env.reset(options={"goal": number})[1]["goal"] == number
            _, info = env.reset(options={"index": index})
            assert (info["goal"], info["task_id"]) == (number, f"webshop/{number}")
            goal, said = env.unwrapped.tasks[index].goal, rows[index]["reward_model"]["ground_truth"]
            assert all(getattr(goal, name) == said[name] for name in ("asin", "instruction", "price_upper"))
            assert goal.options == {pair["name"]: pair["value"] for pair in said["goal_options"]}
            over, reward = False, 0.0
            while not over:
                _, reward, over, cut, _ = env.step(env.unwrapped.expert_action())
                assert not cut
            assert reward > 0.8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"goal_index": "7"}, "a 'goal_index' of its own, got '7'"),
        ({"goal_index": 0}, "a 'goal_index' of its own, got 0"),
        ({"asin": "NONE"}, "no product 'NONE'"),
        ({"attributes": []}, "needs 'attributes'"),
        ({"goal_options": "red"}, "goal_options"),
        ({"goal_index": -1}, "a 'goal_index' of its own, got -1"),
    ],
)
def test_rows_that_are_no_goals_are_refused(tmp_path, change, message):
    asin = gym.make("AgentR1/WebShop-v0").unwrapped.tasks[0].goal.asin

    def row(index: int, **change: Any) -> dict[str, Any]:
        wanted = {"instruction": "a mug", "asin": asin, "attributes": ["red"], "price_upper": 9.0, "goal_options": []}
        wanted |= {key: value for key, value in change.items() if key in wanted}
        return verl_row("a mug", wanted, goal_index=change.get("goal_index", index))

    write(tmp_path / "test.parquet", row(0))
    write(tmp_path / "train.parquet", row(1, **change))
    with pytest.raises(DataError, match=message):
        gym.make("AgentR1/WebShop-v0", goals=str(tmp_path)).reset()


def test_the_full_shop_of_the_release_is_played_from_its_folder(tmp_path):
    """The products are those of its database; the goals and splits those of its rows, or of goals.json without any."""
    folder, other = tmp_path / "webshop_full", {"asin": "B2", "name": "Cup", "Attributes": None, "pricing": "$8.0"}
    lamp = {
        "asin": "B1", "name": "Lamp", "query": "lamps", "small_description": ["Bright"], "pricing": "$5.0 to $7.5",
        "Attributes": ["by hand"], "customization_options": {"size": [{"value": "low"}]}, "total_reviews": 12,
    }  # fmt: skip
    folder.mkdir()
    database = sqlite3.connect(folder / "products.sqlite")
    database.execute("CREATE TABLE products (asin TEXT PRIMARY KEY, product_json TEXT NOT NULL)")
    database.executemany(
        "INSERT INTO products VALUES (?, ?)", [(row["asin"], json.dumps(row)) for row in (lamp, other)]
    )
    database.commit()
    database.close()
    wanted = [{**WANTED, "asin": "B1", "attributes": ["By Hand"], "instruction": f"lamp {n}"} for n in range(3)]
    said = {"name": "Lamp", "query": "lamps", "product_category": "", "goal_options": ["low"]}
    (folder / "goals.json").write_text(json.dumps([goal | said for goal in wanted]))
    shop = {"data": str(folder), "site": "agentr1", "reward": "agentr1", "tagger": "rule"}
    env = gym.make("AgentR1/WebShop-v0", split="all", **shop)
    assert len(env.unwrapped.tasks) == 3
    listed = [{"name": "", "value": "low"}]
    for split, numbers in (("test", [0]), ("train", [1, 2])):
        rows = (verl_row("a", {**wanted[n], "goal_options": listed}, goal_index=n) for n in numbers)
        write(folder / f"{split}.parquet", *(row | {"data_source": f"webshop_full_{split}"} for row in rows))
    assert prepare("webshop", str(tmp_path), source="modelscope") == folder
    env = gym.make("AgentR1/WebShop-v0", split="train", **shop)
    assert len(env.unwrapped.tasks) == 2
    _, info = env.reset(options={"index": 0})
    assert (info["goal"], env.unwrapped.task.goal.instruction) == (1, "lamp 1")
    page = env.step("search[HAND]")[0]
    assert "[1] B1 | Lamp | $5.0 to $7.5 | lamps" in page and "B2" not in page
    env.step("click[b1]")
    assert "Number of reviews: 12" in env.step("click[Reviews]")[0]
    env.step("click[low]")
    assert env.step("click[buy now]")[1:3] == (10.0, True)
    (folder / "products.sqlite").write_bytes(b"SQLite format 3\0" + bytes(99))
    with pytest.raises(DataError, match="products.sqlite cannot be read"):
        gym.make("AgentR1/WebShop-v0", **shop).reset()
