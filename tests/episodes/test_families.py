"""Success by family of tasks, of recorded episodes and among a trainer's metrics."""

import pytest

from agent_envs.episodes.statistics import score_families
from agent_envs.policies import ExpertPolicy, RandomPolicy
from agent_envs.rollout.many import run_episodes

ENV = "AgentR1/ALFWorld-v0"


@pytest.fixture(scope="module")
def episodes():
    played = []
    for split in ("valid_seen", "valid_unseen"):
        played += run_episodes(ENV, ExpertPolicy(), 12, env_kwargs={"split": split, "size": 1}, progress=False)
    return played + run_episodes(ENV, RandomPolicy(), 6, env_kwargs={"split": "valid_seen", "size": 1}, progress=False)


def test_episodes_of_seen_and_unseen_scenes(episodes):
    played = ((e.env_id, e.reset_info["split"], e.reset_info["task_family"], e.success) for e in episodes)
    scores = score_families(played)
    assert scores["ALFWorld-v0/valid_unseen"] == [1.0] * 12
    assert sum(scores["ALFWorld-v0/valid_seen"]) == 12 and len(scores["ALFWorld-v0/valid_seen"]) == 18
    families = {f"ALFWorld-v0/{e.reset_info['task_family']}" for e in episodes}
    assert families <= {*scores} and sum(len(scores[name]) for name in families) == 30


def test_one_split_has_no_lines_of_its_own_and_no_family_none_at_all():
    assert score_families([("A/X-v0", "train", "put", 1)]) == {"X-v0/put": [1.0]}
    assert score_families([("A/X-v0", "train", "", 1)]) == {}


def test_metrics_of_a_validation(episodes):
    pytest.importorskip("verl", reason="needs the verl extra")
    from agent_envs.adapters.verl.batch.metrics import validation_metrics
    from agent_envs.adapters.verl.rollout.episode_rows import episode_record

    metrics = validation_metrics([episode_record(episode) for episode in episodes], expected=len(episodes))
    family = episodes[0].reset_info["task_family"]
    assert 0 < metrics[f"val/ALFWorld-v0/{family}/success"] <= 1
    assert metrics["val/ALFWorld-v0/valid_unseen/success"] == 1
    assert metrics["val/ALFWorld-v0/valid_unseen/episodes"] == 12
    other = run_episodes("AgentR1/GSM8K-v0", ExpertPolicy(), 2, progress=False)
    assert not [n for n in validation_metrics([episode_record(e) for e in other], 2) if "GSM8K" in n]
