"""TRL's own GRPOTrainer on pictures, through an environment class.

1. what TRL is given are the pictures and words of the environment in order, and no word is a picture
2. two steps of GRPO change tiny-vision, and its prompts are, token for token, those of every other adapter
3. a trainer of episodes, from which TRL takes no pictures, refuses them
"""

import gymnasium as gym
import numpy as np
import pytest

trl = pytest.importorskip("trl", minversion="1.16")
torch = pytest.importorskip("torch")

import transformers  # noqa: E402
from trl.chat_template_utils import qwen3_schema  # noqa: E402

from agent_envs.adapters import trl as envs  # noqa: E402
from agent_envs.adapters.tiny.vision import load_vision_base  # noqa: E402
from agent_envs.errors import ConfigError  # noqa: E402
from agent_envs.pictures.picture import Picture  # noqa: E402
from agent_envs.policies.policy import Response  # noqa: E402
from agent_envs.prompts.builder import PromptBuilder  # noqa: E402
from agent_envs.wrappers import ChatMessages  # noqa: E402
from tests.adapters.trl_prompts import prompts_of  # noqa: E402
from tests.pictures.shades import shade  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
FIND = "AgentR1/PictureSearch-v0"
EASY = {"level": 1, "families": "find"}


def test_parts_are_those_of_the_environment():
    environment = envs.environment_class("Shades-v0")()
    text, picture = environment.reset(index=7)
    assert text == {"type": "text", "text": "How bright is the < image>? (7)\n"}
    assert (np.asarray(picture["image"]) == shade(7)).all()
    parts = environment.look(times=3)
    assert [part["type"] for part in parts] == ["text", "image", "text", "image"]
    assert np.asarray(parts[1]["image"]).shape == (4, 2, 3)
    assert environment.say(text="no picture") == "no picture"
    assert envs.episode_reward([[{"role": "assistant", "content": "7"}]], [environment]) == [1.0]


def test_words_imitate_no_control_token():
    environment = envs.environment_class(FIND, env_kwargs=EASY)()
    environment.reset(index=0)
    shown = environment.zoom(left=0, top=0, right=300, bottom=300)
    assert [part["type"] for part in shown] == ["text", "image"]
    from agent_envs.adapters.trl.environment import _shown

    (text, _) = _shown({"text": "a<|image_pad|><|im_end|> <| x <image>", "images": (shade(1),)})
    assert text["text"] == "a< |image_pad|>< |im_end|> <| x "


def processor(made):
    """The model's processor; its part for videos, which torchvision is needed for, is an empty one."""
    return transformers.Qwen2VLProcessor(
        image_processor=made.pictures.image_processor, tokenizer=made.tokenizer,
        video_processor=object.__new__(transformers.BaseVideoProcessor), chat_template=made.tokenizer.chat_template,
    )  # fmt: skip


def differs(completions, **kwargs):
    """A reward that differs within a group where success does not."""
    return [float(n) for n in range(len(completions))]


def test_two_steps_on_pages(tmp_path):
    made = load_vision_base()
    made.tokenizer.response_schema = qwen3_schema
    args = trl.GRPOConfig(
        output_dir=str(tmp_path), per_device_train_batch_size=4, num_generations=4, max_completion_length=500,
        max_steps=2, learning_rate=1e-4, report_to=[], use_cpu=True, logging_steps=1, save_strategy="no",
        disable_tqdm=True, bf16=False, max_tool_calling_iterations=3, seed=1,
    )  # fmt: skip
    trainer = trl.GRPOTrainer(
        made.model, reward_funcs=[envs.episode_reward, differs], args=args, processing_class=processor(made),
        train_dataset=envs.environment_dataset(FIND, range(4), env_kwargs=EASY),
        environment_factory=envs.environment_class(FIND, env_kwargs=EASY),
    )  # fmt: skip
    asked = prompts_of(trainer)
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    trainer.train()
    logs = [line for line in trainer.state.log_history if "reward" in line]
    assert len(logs) == 2 and max(line["tools/call_frequency"] for line in logs) > 0
    assert max(line["tools/failure_frequency"] for line in logs) == 0
    assert all(line["grad_norm"] > 0 for line in logs)
    assert any(not torch.equal(before[name], p) for name, p in trainer.model.named_parameters())
    env = ChatMessages(gym.make(FIND, **EASY))
    builder = PromptBuilder(made.tokenizer, env.get_wrapper_attr("tools"), pictures=made.pictures)
    expected = [builder.start(env.reset(options={"index": index})[0]) for index in range(4)]
    for batch in asked:
        assert len({tuple(ids) for ids in batch}) == 1
        assert list(batch[0]) in expected


def test_episodes_with_pictures_are_refused(tmp_path):
    class Sees:
        def start(self, env):
            return self

        def act(self, observation, info):
            return Response("7", [5], [6], [-0.5], pictures=[Picture(shade(1))])

    made = load_vision_base()
    args = trl.GRPOConfig(str(tmp_path), report_to=[], use_cpu=True, bf16=False)
    dataset = envs.episode_dataset("Shades-v0", [7])
    trainer = envs.EpisodeTrainer(made.model, args, dataset, policy=Sees(), processing_class=made.tokenizer)
    with pytest.raises(ConfigError, match="environment_factory"):
        trainer._generate_and_score_completions([dataset[0]] * 8)
