"""`agentr1 score --by`: official metrics of prediction files and of stored episodes, computed by hand here."""

import json

import pytest

from agent_envs import run_episodes, write_episodes
from agent_envs.cli.main import main
from agent_envs.policies import ScriptedPolicy

CONTEXT = [["Ann Lee", ["Ann Lee was born in Bath."]], ["Bath", ["Bath is a city."]]]
FACTS = [["Ann Lee", 0], ["Bath", 0]]
ROWS = [
    {"_id": "q1", "question": "Where was Ann Lee born?", "answer": "the old Bath", "context": CONTEXT,
     "supporting_facts": FACTS, "answer_id": "Q22", "evidences": [["Ann Lee", "birthplace", "Bath"]],
     "evidences_id": [["Q1", "birthplace", "Q22"]]},
    {"_id": "q2", "question": "Is Bath a city?", "answer": "yes", "context": CONTEXT, "supporting_facts": FACTS[1:],
     "answer_id": "", "evidences": [["Bath", "kind", "city"]], "evidences_id": []},
]  # fmt: skip
SQUAD = [
    {
        "id": row["_id"], "question": row["question"], "answer": row["answer"], "answer_aliases": [],
        "answerable": True, "paragraphs": [
            {"idx": n, "title": title, "paragraph_text": sentences[0], "is_supporting": n == 1}
            for n, (title, sentences) in enumerate(CONTEXT)
        ],
    }
    for row in ROWS
]  # fmt: skip


def write(path, data, lines=False):
    path.write_text("\n".join(map(json.dumps, data)) if lines else json.dumps(data))
    return str(path)


def metrics(capsys, *arguments):
    assert main(["score", "--by", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_predictions_of_hotpotqa(tmp_path, capsys):
    gold = write(tmp_path / "gold.json", ROWS)
    path = write(tmp_path / "p.json", {"answer": {"q1": "Bath"}, "sp": {"q1": [FACTS[0]], "q2": FACTS}})
    report = metrics(capsys, "hotpotqa", path, "--gold", gold)
    # q1: precision 1, recall 1/2, f1 2/3; facts 1, 1/2, 2/3; jointly 1, 1/4, 2/5. q2: no answer; facts 1/2, 1, 2/3.
    wanted = {"em": 0, "f1": 1 / 3, "prec": 0.5, "recall": 0.25, "sp_em": 0, "sp_f1": 2 / 3, "sp_prec": 0.75}
    wanted |= {"sp_recall": 0.75, "joint_em": 0, "joint_f1": 0.2, "joint_prec": 0.5, "joint_recall": 0.125}
    assert (report["questions"], report["missing"]) == (2, 1)
    assert report["metrics"] == pytest.approx(wanted)
    assert main(["score", "--by", "hotpotqa", path, "--gold", gold]) == 0
    out = capsys.readouterr().out
    assert "2 questions, 1 without an answer" in out and "joint_f1      0.2000" in out


def test_predictions_of_2wiki_with_the_names_beside_its_rows(tmp_path, capsys):
    gold = write(tmp_path / "gold.json", ROWS)
    names = {"Q_id": "Q22", "aliases": ["Aquae Sulis"], "demonyms": ["Bathonian"]}
    write(tmp_path / "id_aliases.json", [names], lines=True)
    said = {"answer": {"q1": "bathonian", "q2": "yes"}, "sp": {"q1": [["ANN LEE", 0], ["bath", 0]], "q2": FACTS[1:]}}
    said["evidence"] = {"q1": [["ann lee", "Birthplace", "Aquae Sulis"]], "q2": [["Bath", "kind", "town"]]}
    report = metrics(capsys, "2wiki", write(tmp_path / "p.json", said), "--gold", gold)["metrics"]
    assert (
        report["em"] == report["sp_em"] == 1.0 and report["evi_em"] == report["joint_em"] == report["joint_f1"] == 0.5
    )
    elsewhere = write(tmp_path / "names.json", [{"Q_id": "Q5", "aliases": ["Bathonian"]}], lines=True)
    report = metrics(capsys, "2wiki", str(tmp_path / "p.json"), "--gold", gold, "--aliases", elsewhere)["metrics"]
    assert report["em"] == 0.5 and report["evi_em"] == 0.0


def test_predictions_of_musique(tmp_path, capsys):
    unanswerable = SQUAD[0] | {"id": "q3", "answerable": False}
    gold = write(tmp_path / "gold.jsonl", [*SQUAD, unanswerable], lines=True)
    said = [
        {"id": name, "predicted_answer": answer, "predicted_support_idxs": support, "predicted_answerable": True}
        for name, answer, support in (("q1", "Bath", [1]), ("q2", "yes it is", [0, 1]))
    ]
    report = metrics(capsys, "musique", write(tmp_path / "p.jsonl", said, lines=True), "--gold", gold)
    assert report["questions"] == 2
    assert report["metrics"] == pytest.approx(
        {"answer_em": 0, "answer_f1": (2 / 3 + 0.5) / 2, "support_f1": (1 + 2 / 3) / 2}
    )


@pytest.mark.parametrize(("dataset", "env_id"), [("hotpotqa", "HotpotQA"), ("musique", "MuSiQue")])
def test_episodes_state_an_answer_and_no_facts(dataset, env_id, tmp_path, capsys):
    gold = write(tmp_path / "gold.json", SQUAD if dataset == "musique" else ROWS)
    answers = ["<answer>Bath</answer>", "<answer>yes it is</answer>"]
    made = []
    for index, answer in enumerate(answers):
        made += run_episodes(
            f"AgentR1/{env_id}-v0", ScriptedPolicy([answer]), 1, options=[{"index": index}], env_kwargs={"data": gold}
        )
    path = tmp_path / "run" / "episodes.jsonl"
    write_episodes(path, made)
    report = metrics(capsys, dataset, str(path.parent), "--gold", gold)
    if dataset == "musique":
        assert report["metrics"] == pytest.approx({"answer_em": 0, "answer_f1": (2 / 3 + 0.5) / 2})
    else:
        assert report["metrics"] == pytest.approx({"em": 0, "f1": 1 / 3, "prec": 0.5, "recall": 0.25})
    assert report == metrics(capsys, dataset, str(path), "--gold", gold)
    other = write(tmp_path / "other.json", (SQUAD if dataset == "musique" else ROWS)[::-1])
    assert main(["score", "--by", dataset, str(path), "--gold", other]) == 2
    assert "does not ask the question of gold row 0" in capsys.readouterr().err


def test_what_cannot_be_compared_is_said(tmp_path, capsys):
    gold = write(tmp_path / "gold.json", ROWS)
    path = write(tmp_path / "p.json", {"answer": {"q7": "Bath"}, "sp": {}})
    assert main(["score", "--by", "hotpotqa", path, "--gold", gold]) == 2
    assert "no prediction is of a question in" in capsys.readouterr().err
    assert main(["score", "--by", "hotpotqa", path, "--gold", write(tmp_path / "odd.json", [5])]) == 2
    assert "expected an object with a question and an answer" in capsys.readouterr().err
    for predictions, rows in (
        (str(tmp_path / "none.json"), gold),
        (str(tmp_path / "none"), gold),
        (path, str(tmp_path / "no.json")),
    ):
        assert main(["score", "--by", "hotpotqa", predictions, "--gold", rows]) == 2
        assert "none" in (err := capsys.readouterr().err) or "no.json" in err
