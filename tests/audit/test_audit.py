"""The audit of this package's environments, and its command.

Behaviours pinned here:
1. The released tool of GSM8K that tells whether an answer is right is found, and its released reward for every step.
2. An environment without a fault ends with status 0, one with a fault with status 3, a wrong argument with status 2.
3. The episodes of the findings are a file that `agentr1 view` shows; a certificate is the same when it is made again.
4. Discrete actions are played by their names, and observations that are no text are shown as one.
5. What guessing earns by nature may be declared.
"""

import json

import gymnasium as gym
import pytest

from agent_envs.audit import audit
from agent_envs.cli.main import main

TOOL = "AgentR1/GSM8KTool-v0"


def test_the_released_tool_is_found_and_shown(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("agent_envs.audit.run.hash_seeds", lambda *given: ("not compared", []))  # two processes
    kwargs = ["--env-kwargs", '{"tool": "check_answer"}']
    assert main(["audit", "--env", TOOL, *kwargs, "--tasks", "3", "--out", str(tmp_path)]) == 3
    said = capsys.readouterr().out
    assert "calc_gsm8k_reward(answer)" in said and "agentr1 view" in said
    kept = json.loads((tmp_path / "certificate.json").read_text())
    assert {finding["kind"] for finding in kept["findings"]} == {"tool"} and not kept["passed"]
    assert main(["view", str(tmp_path), "--out", str(tmp_path / "page.html")]) == 0
    assert "1 episode in" in capsys.readouterr().out


def test_the_released_reward_is_found():
    found = audit(TOOL, env_kwargs={"reward": "agentr1"}, tasks=3, processes=False)
    assert [finding.kind for finding in found.findings] == ["repeat", "invalid"]


def test_a_sound_environment_has_the_same_certificate_again(capsys):
    assert main(["audit", "--env", "AgentR1/GSM8K-v0", "--tasks", "3", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["passed"] and said["expert"] == 1.0 and said["attacks"]["silent"]["solved"] == 0.0
    assert said["checks"].pop("processes").startswith("nothing found")
    assert json.loads(json.dumps(audit("AgentR1/GSM8K-v0", tasks=3, processes=False).to_dict())) == said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["AgentR1/NoSuch-v0"], "unknown environment"),
        ([TOOL, "--tasks", "0"], "tasks must be an integer of at least 1"),
        ([TOOL, "--env-kwargs", "{"], "not valid JSON"),
        ([TOOL, "--env-kwargs", '{"tool": "saw"}'], "saw"),
        (["Pendulum-v1"], "Box"),
    ],
)
def test_wrong_arguments_are_one_message(arguments, message, capsys):
    assert main(["audit", "--env", *arguments]) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1


@pytest.mark.parametrize("there", ["episodes.jsonl", "run.json", None])
def test_only_another_audit_is_replaced(there, tmp_path, capsys):
    """An evaluation's folder has an episodes.jsonl too, and a file is refused before anything is played."""
    out = tmp_path / "run"
    if there:
        out.mkdir()
    (out / (there or "")).write_text("{}\n")
    assert main(["audit", "--env", TOOL, "--tasks", "1", "--out", str(out)]) == 2
    assert "holds something else than an audit; choose another folder" in capsys.readouterr().err
    assert (out / (there or "")).read_text() == "{}\n"


def test_discrete_actions_are_played_by_their_names():
    found = audit("FrozenLake-v1", env_kwargs={"is_slippery": False, "render_mode": "ansi"}, tasks=4, processes=False)
    assert found.expert == 1.0 and found.findings == []


def test_what_guessing_earns_by_nature_may_be_declared():
    class Coin(gym.Env):
        observation_space = action_space = gym.spaces.Text(100)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.heads = self.np_random.random() < 0.5
            return "Heads or tails? Answer yes or no.", {}

        def step(self, action):
            return "", float(action == ("yes" if self.heads else "no")), True, False, {}

    assert {finding.kind for finding in audit(Coin, tasks=8).findings} >= {"constant"}
    assert audit(Coin, tasks=8, chance=0.5).passed


def test_the_page_of_certificates_is_current_and_only_released_variants_have_exploits(root, load_file, monkeypatch):
    monkeypatch.syspath_prepend(str(root / "benchmarks"))
    certificates = load_file("benchmarks/certificates.py")
    assert certificates.PAGE.read_text(encoding="utf-8") == certificates.page(), (
        "python benchmarks/certificates.py page"
    )
    cases = certificates.CASES | certificates.FOREIGN
    audited = {case.env for name, case in cases.items() if (certificates.FOLDER / f"{name}.json").exists()}
    elsewhere = {"AgentR1/Remote-v0", "AgentR1/TauBench-v0"}  # of a server, and of a checkout that nobody has here
    assert audited == {name for name in gym.registry if name.startswith("AgentR1/")} - elsewhere
    for file in certificates.FOLDER.glob("*.json"):
        kept = json.loads(file.read_text(encoding="utf-8"))
        if file.stem not in certificates.FOREIGN:  # whose findings are their packages'
            released = certificates.CASES[file.stem].why.startswith("Released:")
            assert kept["passed"] != released and kept["expert"] == 1.0
            assert kept["attacks"]["silent"]["solved"] <= 0.01
