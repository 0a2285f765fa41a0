"""Real multi-hop questions: the released layouts, their corpus, `agentr1 prepare`, broken rows.

1. Every layout of a row gives the same task, and the same paragraphs.
2. The corpus is the union of the paragraphs, each once, as pyserini's passages have them.
3. On real rows a gold answer scores 1.0, whatever the alias, and a wrong one 0.0.
4. prepare places tasks, corpus and index, whole or not at all.
5. A broken row is named with its file and place.
"""

import json
import pickle
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import agent_envs  # noqa: F401  (registers the ids)
from agent_envs.cli.main import main
from agent_envs.datasets.prepare import prepare
from agent_envs.datasets.qa.corpus import passages_of
from agent_envs.datasets.qa.rows import qa_rows, read_qa, read_row
from agent_envs.errors import DataError
from tests.helpers import write_rows as write

IDS = {"hotpotqa": "AgentR1/HotpotQA-v0", "2wiki": "AgentR1/TwoWikiMultihopQA-v0", "musique": "AgentR1/MuSiQue-v0"}
PARAGRAPHS = [["Korvath", ["Korvath is a town.", " Its mayor is Adan Orvel."]]]
PARAGRAPHS += [["Adan Orvel", ["She was born in Pigam."]]]
ASKED = {"question": "Where was the mayor of Korvath born?", "answer": "Pigam"}
RELEASED: dict[str, Any] = {
    "_id": "q1", **ASKED, "type": "bridge", "level": "easy", "context": PARAGRAPHS,
    "supporting_facts": [["Korvath", 1], ["Korvath", 0], ["Adan Orvel", 0]],
}  # fmt: skip
HUB = {
    **{key: RELEASED[key] for key in ("question", "answer", "type", "level")},
    "id": "q1",
    "supporting_facts": {"title": ["Korvath", "Korvath", "Adan Orvel"], "sent_id": [1, 0, 0]},
    "context": {"title": [p[0] for p in PARAGRAPHS], "sentences": [p[1] for p in PARAGRAPHS]},
}
MUSIQUE: dict[str, Any] = {"id": "2hop__1_2", **ASKED, "answer_aliases": ["Old Pigam"], "answerable": True}
MUSIQUE["question_decomposition"] = [{"id": 1}, {"id": 2}]
MUSIQUE["paragraphs"] = [
    {"idx": idx, "title": title, "paragraph_text": text, "is_supporting": title != "Dorn"}
    for idx, (title, text) in enumerate(
        [
            ("Korvath", "Korvath is a town. Its mayor is Adan Orvel."),
            ("Dorn", "Dorn is a town."),
            ("Adan Orvel", "She was born in Pigam."),
        ]
    )
]


# a parquet file has no column type for pairs of a text and a list
@pytest.mark.parametrize(("layout", "suffix"), [("released", ".json"), ("hub", ".parquet"), ("as text", ".parquet")])
def test_layouts_of_hotpotqa_and_2wiki(layout, suffix, tmp_path):
    row: dict[str, Any] = {"released": RELEASED, "hub": HUB}.get(layout) or {
        **RELEASED, "context": json.dumps(PARAGRAPHS), "supporting_facts": json.dumps(RELEASED["supporting_facts"]),
    }  # fmt: skip
    (read,) = read_qa([write(tmp_path / f"rows{suffix}", [row])])
    task = read.task
    assert (task.question, task.answers) == (RELEASED["question"], ("Pigam",))
    assert task.supporting == ("Korvath", "Adan Orvel")
    assert (task.question_type, task.level, task.hops, task.question_id) == ("bridge", "easy", 2, "q1")
    assert read.paragraphs == (
        ("Korvath", "Korvath is a town. Its mayor is Adan Orvel."),
        ("Adan Orvel", "She was born in Pigam."),
    )


def test_musique():
    read = read_row(MUSIQUE, "row 1")
    assert read.task.answers == ("Pigam", "Old Pigam")
    assert read.task.supporting == ("Korvath", "Adan Orvel")
    assert (read.task.question_type, read.task.hops, len(read.paragraphs)) == ("bridge", 2, 3)


def test_sentences_without_spaces_get_them():
    row = {**RELEASED, "context": [["Korvath", ["One.", "Two.", "Three."]]]}
    assert read_row(row, "row 1").paragraphs == (("Korvath", "One. Two. Three."),)


def test_aliases_of_2wiki_come_from_the_file_beside_the_rows(tmp_path):
    path = write(tmp_path / "dev.json", [{**RELEASED, "answer_id": "Q1"}, {**RELEASED, "answer_id": "Q2"}])
    (tmp_path / "id_aliases.json").write_text('{"Q_id": "Q1", "aliases": ["Pigam Town"], "demonyms": []}\n')
    assert [row.task.answers for row in read_qa([path])] == [("Pigam", "Pigam Town"), ("Pigam",)]
    rows = qa_rows("2wiki", str(tmp_path), "dev")
    assert list(pickle.loads(pickle.dumps(rows))) == list(rows) and len(rows) == 2  # the file of aliases is no split
    assert qa_rows("2wiki", str(tmp_path), "validation").split == "validation"  # dev stands for it


# -- real rows -------------------------------------------------------------------------------------------------------


def files(data_dir: Path) -> dict[str, Path]:
    return {
        "hotpotqa": data_dir / "hotpotqa" / "hotpot_train_distractor_100.json",
        "musique": data_dir / "musique" / "musique_train_40.json",
    }


def test_the_corpus_of_real_rows_is_pyserinis(data_dir):
    passages = list(passages_of(read_qa([files(data_dir)["hotpotqa"]])))
    contents = [f'"{passage["title"]}"\n{passage["text"]}' for passage in passages]
    lines = (data_dir / "hotpotqa" / "passages_open.jsonl").read_text(encoding="utf-8").splitlines()
    assert contents == [json.loads(line)["contents"] for line in lines]
    assert len({passage["id"] for passage in passages}) == len(passages)


@pytest.mark.parametrize("dataset", ["hotpotqa", "musique"])
def test_real_answers_score_and_others_do_not(dataset, data_dir):
    env = gym.make(IDS[dataset], data=str(files(data_dir)[dataset]))
    base: Any = env.unwrapped
    for index in range(base.num_tasks):
        question, _ = env.reset(options={"index": index})
        assert question == base.task.question
        for answer in base.task.answers:
            env.reset(options={"index": index})
            _, reward, terminated, _, info = env.step(f"<answer>{answer}</answer>")
            assert (reward, terminated, info["success"], info["f1"]) == (1.0, True, True, 1.0), base.task
        for wrong in (f"not {base.task.answers[0]}", "yes and no", base.task.supporting[0] + " x"):
            env.reset(options={"index": index})
            _, reward, _, _, info = env.step(f"<answer>{wrong}</answer>")
            assert (reward, info["success"]) == (0.0, False)
    assert base.num_tasks == {"hotpotqa": 100, "musique": 40}[dataset]


# -- prepare ---------------------------------------------------------------------------------------------------------


def test_prepare_places_everything(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT_ENVS_DATA", str(tmp_path / "prepared"))
    released = tmp_path / "released"
    write(
        released / "hotpot_train_v1.1.json",
        [RELEASED, {**RELEASED, "_id": "q2", "question": "Is Korvath a town?", "answer": "yes"}],
    )
    other = {**RELEASED, "_id": "q3", "context": [*PARAGRAPHS, ["Dorn", ["Dorn is a town."]]]}
    write(released / "hotpot_dev_distractor_v1.json", [other])
    with pytest.raises(DataError, match="agentr1 prepare hotpotqa"):
        gym.make(IDS["hotpotqa"], data="official")
    assert main(["prepare", "hotpotqa", "--from", str(released)]) == 0
    folder = tmp_path / "prepared" / "hotpotqa"
    passages = [json.loads(line) for line in (folder / "passages.jsonl").read_text().splitlines()]
    assert sorted(p["title"] for p in passages) == ["Adan Orvel", "Dorn", "Korvath"]
    env = gym.make(IDS["hotpotqa"], data="official")
    env.reset(options={"index": 1})
    base: Any = env.unwrapped
    assert (base.num_tasks, base.task.answers, base.task.supporting) == (2, ("yes",), ("Korvath", "Adan Orvel"))
    observation, *_ = env.step(base.format_call("search", {"query": "Dorn"}))
    assert "[1] Dorn\nDorn is a town." in observation  # a paragraph of another split
    assert gym.make(IDS["hotpotqa"], data="official", split="validation").reset(seed=0)[1]["split"] == "validation"


@pytest.mark.parametrize(("dataset", "row"), [("2wiki", RELEASED), ("musique", MUSIQUE)])
def test_prepare_reads_a_single_file(dataset, row, tmp_path):
    pytest.importorskip("pyarrow")
    path = write(tmp_path / f"{dataset}_dev.jsonl", [row, {**row, "answer": None}])
    out = prepare(dataset, str(path), tmp_path / "out")
    rows = qa_rows(dataset, str(out), "validation")
    (task,) = rows  # the row without its answer is left out
    assert (task.answers, task.supporting) == (read_row(row, "").task.answers, ("Korvath", "Adan Orvel"))
    env = gym.make(IDS[dataset], data=str(out), split="validation")
    assert env.reset(seed=0)[0] == row["question"]
    assert "Orvel" in env.step(env.unwrapped.format_call("search", {"query": "mayor"}))[0]  # type: ignore[attr-defined]


def test_online_rows_are_written(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets", minversion="2.0")
    pytest.importorskip("pyarrow")
    splits = {"train": [HUB], "validation": [HUB], "test": [{**HUB, "answer": None}]}
    monkeypatch.setattr(datasets, "load_dataset", lambda name, config, revision: splits)
    out = prepare("hotpotqa", None, tmp_path / "hotpotqa")
    names = sorted(path.name for path in out.iterdir())
    assert names == ["index", "passages.jsonl", "train.jsonl", "validation.jsonl"]


# -- broken rows -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([], "expected an object"),
        ({}, "expected text under 'question'"),
        ({**RELEASED, "question": " "}, "expected text under 'question'"),
        ({**RELEASED, "answer": None}, "expected text under 'answer'"),
        ({**RELEASED, "answer": [3]}, "expected text under 'answer'"),
        ({**RELEASED, "context": None}, "expected a list under 'context'"),
        ({**RELEASED, "context": "{oops"}, "under 'context' is not valid JSON"),
        ({**RELEASED, "context": [["Korvath"]]}, "expected .title, .sentence"),
        ({**RELEASED, "context": [["Korvath", [3]]]}, "expected a list of strings under 'context'"),
        ({**RELEASED, "supporting_facts": 7}, "expected a list under 'supporting_facts'"),
        ({**RELEASED, "supporting_facts": [[1, 2]]}, "expected a list of strings under 'supporting_facts'"),
        ({"question": "x", "answer": "y"}, "expected paragraphs under 'context' or 'paragraphs'"),
        ({**MUSIQUE, "paragraphs": ["x"]}, "expected objects under 'paragraphs'"),
        ({**MUSIQUE, "paragraphs": [{"title": "x"}]}, "expected text under 'paragraph_text'"),
        ({**MUSIQUE, "answer_aliases": "x"}, "expected a list under 'answer_aliases'"),
        ({"question": "x", "answers": [], "supporting": []}, "the answer is empty"),
    ],
)
def test_broken_rows_are_named(row, message, tmp_path):
    for name, where in (("rows.json", "entry 2"), ("rows.jsonl", "line 2")):
        path = write(tmp_path / name, [RELEASED, row])
        with pytest.raises(DataError, match=rf"{name}, {where}: .*{message}"):
            qa_rows("hotpotqa", str(path))
