"""Success by family of tasks, of recorded episodes and among a trainer's metrics."""

import pytest

from agent_envs.episodes.statistics import score_families
from agent_envs.policies import ExpertPolicy, RandomPolicy
from agent_envs.rollout.many import run_episodes


def test_one_split_has_no_lines_of_its_own_and_no_family_none_at_all():
    assert score_families([("A/X-v0", "train", "put", 1)]) == {"X-v0/put": [1.0]}
    assert score_families([("A/X-v0", "train", "", 1)]) == {}


def test_metrics_of_a_validation():
    pytest.importorskip("verl", reason="needs the verl extra")
    from agent_envs.adapters.verl.batch.metrics import validation_metrics
    from agent_envs.adapters.verl.rollout.episode_rows import episode_record

    episodes, expert = [], ExpertPolicy()
    for split, policy in (("valid_seen", expert), ("valid_unseen", expert), ("valid_seen", RandomPolicy())):
        kwargs = {"split": split, "size": 1}
        episodes += run_episodes("AgentR1/ALFWorld-v0", policy, 5, env_kwargs=kwargs, progress=False)
    metrics = validation_metrics([episode_record(episode) for episode in episodes], expected=len(episodes))
    family = episodes[0].reset_info["task_family"]
    assert 0 < metrics[f"val/ALFWorld-v0/{family}/success"] <= 1
    assert metrics["val/ALFWorld-v0/valid_seen/success"] == 0.5
    assert metrics["val/ALFWorld-v0/valid_unseen/success"] == 1
    assert metrics["val/ALFWorld-v0/valid_unseen/episodes"] == 5
    other = run_episodes("AgentR1/GSM8K-v0", expert, 2, progress=False)
    assert not [n for n in validation_metrics([episode_record(e) for e in other], 2) if "GSM8K" in n]
