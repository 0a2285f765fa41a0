"""`agentr1 doctor`: what is installed, what works, what to do, and a status that says whether anything is broken."""

from __future__ import annotations

import configparser
import json

import pytest

from agent_envs.cli import doctor
from agent_envs.cli.main import main


@pytest.fixture
def examined(capsys, tmp_path, monkeypatch):
    """Runs the command in a data folder of its own; returns its findings by name."""
    monkeypatch.setenv("AGENT_ENVS_DATA", str(tmp_path / "data"))

    def run(*arguments, status=0):
        assert main(["doctor", "--quick", "--json", *arguments]) == status
        return {f["name"]: f for f in json.loads(capsys.readouterr().out)["findings"]}

    return run


@pytest.fixture
def works(monkeypatch):
    """An episode and the sandbox work, without a try."""
    for name in ("_episode", "_sandbox"):
        monkeypatch.setattr(doctor, name, lambda: ("ok", "it works"))


def test_what_works_here_is_found_to_work(examined, root, agentr1):
    found = examined()
    config = configparser.ConfigParser()
    config.read(root / "setup.cfg")
    if found["base"]["state"] != "differs":  # installed, and not just imported from a folder
        assert {"base", "verl", "openai"} <= set(found)
        extras = set(found) - {"base", "pins", "episode", "sandbox", "data folder"}
        assert extras <= set(config["options.extras_require"])
    assert found["episode"]["state"] == found["data folder"]["state"] == "ok"
    assert {f["state"] for f in found.values()} <= {"ok", "absent", "differs"}
    assert all(f["remedy"] for f in found.values() if f["state"] == "differs")
    text = agentr1("doctor", "--quick")
    assert text.index("installed\n") < text.index("works here\n") < text.index("ok       episode")


def test_what_is_absent_is_named_and_shown_with_all(works, monkeypatch, agentr1):
    absent = doctor.Finding("installed", "verl", "absent", "without verl", "pip install 'agent-envs[verl]'")
    monkeypatch.setattr(doctor, "_extras", lambda: [doctor.Finding("installed", "base", "ok", "gymnasium 1"), absent])
    text = agentr1("doctor", "--quick")
    assert "pip install" not in text and "absent   " not in text and "absent: verl" in text
    text = agentr1("doctor", "--quick", "--all")
    assert "absent   verl" in text and "without verl\n" in text and "pip install 'agent-envs[verl]'\n" in text
    assert "absent: " not in text


def test_a_data_folder_that_cannot_be_written_is_broken(works, examined, tmp_path):
    (tmp_path / "data").write_text("a file")
    found = examined(status=1)["data folder"]
    assert found["state"] == "broken" and "AGENT_ENVS_DATA" in found["remedy"]


def test_pins_are_compared_and_do_not_fail(works, examined, tmp_path):
    (tmp_path / "pins.txt").write_text("# mine\ngymnasium==0.1\nnothing-of-the-kind==1.0\npip==0.1\n")
    found = examined("--constraints", str(tmp_path / "pins.txt"))["pins"]
    assert found["state"] == "differs" and "(pinned 0.1), of 1 installed packages" in found["detail"]


@pytest.mark.parametrize("content", [None, "", "gymnasium>=1"])
def test_a_file_without_pins_is_bad_input(agentr1, tmp_path, content):
    if content is not None:
        (tmp_path / "pins.txt").write_text(content)
    assert "pins.txt: " in agentr1("doctor", "--quick", "--constraints", tmp_path / "pins.txt", status=2)


def test_missing_and_unsuitable_packages_come_with_what_to_do(works, examined, monkeypatch):
    needs = ["gymnasium<1.5,>=1.4", "tqdm>=4", "agent-envs[data]; extra == 'more'", "pandas>=2; extra == 'data'",
             "winreg; sys_platform == 'win32'", "openai>=2,<3; extra == 'openai'"]  # fmt: skip
    versions = {"gymnasium": "1.4.2", "tqdm": "4.1", "openai": "1.9.0"}
    monkeypatch.setattr(doctor.metadata, "requires", lambda name: needs)
    monkeypatch.setattr(doctor, "_installed", versions.get)
    found = examined(status=1)
    assert {name: found[name]["state"] for name in ("base", "data", "more", "openai")} == {
        "base": "ok", "data": "absent", "more": "absent", "openai": "broken"
    }  # fmt: skip
    assert found["more"]["remedy"] == "pip install 'agent-envs[more]'"
    assert found["openai"]["detail"] == "openai 1.9.0 (wanted <3,>=2)"
    del versions["tqdm"]
    assert examined(status=1)["base"]["state"] == "broken"


def test_what_is_installed_and_does_not_run_is_broken(monkeypatch):
    monkeypatch.setattr(doctor, "_installed", lambda name: "1.0")
    monkeypatch.setattr(doctor, "_RAY", "print('2.60.0')")
    monkeypatch.setattr(doctor, "_TORCH", "raise RuntimeError('no driver')")
    assert doctor._ray()[0] == "ok" and doctor._gpu()[:2] == ("broken", "RuntimeError: no driver")
    monkeypatch.setattr(doctor, "_SECONDS", 0.2)
    monkeypatch.setattr(doctor, "_RAY", "import time; time.sleep(60)")
    assert doctor._ray()[0] == "broken" and "did not answer" in doctor._ray()[1]


@pytest.mark.parametrize(
    ("said", "card", "state"),
    [
        ("2.13.0+cpu", None, "absent"),
        ("2.13.0+cpu", "/bin/nvidia-smi", "differs"),  # a GPU, and a torch without CUDA
        ("2.11.0, NVIDIA H100", "/bin/nvidia-smi", "ok"),
    ],
)
def test_a_gpu_is_found_where_torch_sees_it(monkeypatch, said, card, state):
    monkeypatch.setattr(doctor, "_installed", lambda name: "1.0")
    monkeypatch.setattr(doctor, "_tried", lambda code: (True, said))
    monkeypatch.setattr(doctor.shutil, "which", lambda name: card)
    assert doctor._gpu()[0] == state
