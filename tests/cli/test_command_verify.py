"""`agentr1 verify --claims`: what README promises holds here, and a promise that is broken is told.

    python tests/cli/test_command_verify.py --write     # when the bytes of an environment change on purpose

Behaviours pinned here:
1. Each claim holds, or says which extra it needs.
2. Other bytes, an environment that raises, an engine that answers otherwise and tokens that are others are each found.
"""

import json
import sys
from pathlib import Path

import pytest

import agent_envs.cli
from agent_envs.cli import verify
from agent_envs.cli.main import main
from agent_envs.policies import RandomPolicy

RECORDED = Path(agent_envs.cli.__file__).with_name("claims.json")


def claims(capsys, status):
    assert main(["verify", "--claims", "--json"]) == status
    return {row["claim"]: row["ok"] for row in json.loads(capsys.readouterr().out)}


def test_the_claims_hold(root, capsys, agentr1):
    readme = (root / "README.md").read_text(encoding="utf-8")
    assert all(f"- {claim}\n" in readme for claim in verify._CLAIMS)
    assert set(claims(capsys, 0).values()) <= {True, None}
    assert set(json.loads(RECORDED.read_text())) == {*verify.ENV_IDS, *verify.PICTURE_IDS}
    assert "--claims" in agentr1("verify", status=2)


def test_other_bytes_are_found(monkeypatch, capsys):
    monkeypatch.setattr(verify, "ExpertPolicy", lambda noise, seed: RandomPolicy(seed=seed + 1))
    monkeypatch.setattr(verify, "_CLAIMS", {"bytes": verify._same_bytes})
    monkeypatch.setattr(verify, "_IDS", verify.ENV_IDS[1:2])
    assert claims(capsys, 1) == {"bytes": False}


@pytest.mark.parametrize("broken", ["raises", "pays"])
def test_an_action_that_crashes_is_found(broken, monkeypatch, capsys):
    made = verify.make_env

    def broken_env(env_id):
        env = made(env_id)
        step = env.step

        def stepped(action):
            if broken == "raises" and "####" in action:
                raise KeyError(action)
            observation, reward, *rest = step(action)
            return observation, float("nan") if broken == "pays" else reward, *rest

        env.step = stepped
        return env

    monkeypatch.setattr(verify, "make_env", broken_env)
    monkeypatch.setattr(verify, "_CLAIMS", {"crash": verify._no_crash})
    assert claims(capsys, 1) == {"crash": False}


def test_another_engine_is_found(monkeypatch, capsys):
    made = verify.make_env
    monkeypatch.setattr(verify, "make_env", lambda env_id, engine: made(env_id, size=1))
    monkeypatch.setattr(verify, "_CLAIMS", {"engine": verify._as_the_original})
    assert claims(capsys, 1) == {"engine": False}


@pytest.mark.parametrize("wrong", ["tokens", "model"])
def test_tokens_that_are_others_are_found(wrong, monkeypatch, capsys):
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from agent_envs.adapters import batches
    from agent_envs.adapters.tiny import model as tiny_model

    build, load = batches.build_batch, tiny_model.load_base

    def shifted(episodes):
        batch = build(episodes)
        batch.input_ids[batch.start[0]] ^= 1
        return batch

    def trained():
        model, tokenizer = load()
        with torch.no_grad():
            model.model.norm.weight.mul_(1.01)
        return model, tokenizer

    monkeypatch.setattr(batches, "build_batch", shifted if wrong == "tokens" else build)
    monkeypatch.setattr(tiny_model, "load_base", load if wrong == "tokens" else trained)
    monkeypatch.setattr(verify, "_CLAIMS", {"tokens": verify._trained_as_sampled})
    assert claims(capsys, 1) == {"tokens": False}


if __name__ == "__main__" and sys.argv[1:] == ["--write"]:
    digests = {env_id: verify.played_digest(env_id) for env_id in (*verify.ENV_IDS, *verify.PICTURE_IDS)}
    RECORDED.write_text(json.dumps(digests, indent=1) + "\n")
