"""The script of the real model's cells: untrained, warm-started and trained on held-out tasks, as one JSON."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("transformers")

from agent_envs.adapters.tiny.model import base_folder


@pytest.mark.slow
def test_a_cell_has_a_row_for_each_stage_and_goes_on(load_file, tmp_path, capsys):
    script = load_file("benchmarks/real_model.py")
    small = {"steps": 2, "tasks": 2, "group": 2, "eval_every": 1, "eval_tasks": 4, "warm_start": 2, "save_every": 1}
    words = ["--cell", "GSM8KTool", "--model", str(base_folder()), "--out", str(tmp_path), "--set", json.dumps(small)]
    assert script.main([*words, "--minutes", "0.001"]) == 0
    assert capsys.readouterr().out.endswith("stopped at step 1\n")
    assert script.main(words) == 0
    assert capsys.readouterr().out.endswith("done\n")
    result = json.loads((tmp_path / "GSM8KTool.0.json").read_text())
    assert [row["what"] for row in result["rows"]] == ["untrained", "warm start", "trained"]
    assert all(row["low"] <= row["success"] <= row["high"] for row in result["rows"])
    assert [point["step"] for point in result["curve"]] == [0, 1, 2] and len(result["training"]) == 2
    assert result["start"] == "2 steps of demonstrations, 30% of the actions wrong" and result["sampled_tokens"] > 0
    assert str(tmp_path) not in result["command"]
    assert f"--model {base_folder().name} --set '{json.dumps(small)}'" in result["command"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--set", "[1]"], "--set must be a JSON object"),
        (["--set", '{"stpes": 1}'], "Did you mean 'steps'?"),
        (["--minutes", "nan"], "--minutes must be a number above 0, got nan"),
        (["--cell", "GSM8K-rows"], "the cell GSM8K-rows is of released rows: give --data"),
    ],
)
def test_what_a_cell_cannot_be_is_one_message(load_file, tmp_path, capsys, words, says):
    script = load_file("benchmarks/real_model.py")
    assert script.main(["--cell", "GSM8KTool", "--out", str(tmp_path / "x"), *words]) == 2
    assert says in capsys.readouterr().err and not (tmp_path / "x").exists()
