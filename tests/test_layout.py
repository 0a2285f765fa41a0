"""The promises of the layout: whose `datasets` is imported, who imports whom, what a wheel holds, what it loads."""

from __future__ import annotations

import ast
import configparser
import doctest
import importlib
import inspect
import pkgutil
import shutil
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path

import pytest

import agent_envs

TOP = ("adapters", "datasets", "wrappers")
HEAVY = {"torch", "verl", "transformers", "tokenizers", "datasets", "pandas", "pyarrow", "openai", "matplotlib", "ray"}


def _module_files(root: Path) -> dict[str, Path]:
    """Module name -> file, of the whole package, the linked folders included."""
    files = {}
    for folder in ("agent_envs", *TOP):
        for path in sorted((root / folder).rglob("*.py")):
            if folder == "agent_envs" and path.relative_to(root / folder).parts[0] in TOP:
                continue
            parts = path.relative_to(root).with_suffix("").parts
            name = ".".join(parts if folder == "agent_envs" else ("agent_envs", *parts))
            files[name.removesuffix(".__init__")] = path
    return files


def test_the_top_folders_are_linked_and_datasets_stays_a_namespace(root):
    for name in TOP:
        link = root / "agent_envs" / name
        assert link.is_symlink() and not Path(link.readlink()).is_absolute()
        assert link.resolve() == root / name
    assert not (root / "datasets" / "__init__.py").exists()
    assert (root / "adapters" / "__init__.py").exists()  # without it `import verl` from the root would be ours


def test_setup_cfg_lists_every_package(root):
    config = configparser.ConfigParser()
    config.read(root / "setup.cfg")
    listed = set(config["options"]["packages"].split())
    found = {name if p.name == "__init__.py" else name.rpartition(".")[0] for name, p in _module_files(root).items()}
    assert listed == found
    assert sorted(listed) == config["options"]["packages"].split()


def _where_datasets_is(cwd: Path, *command: str) -> str:
    done = subprocess.run(
        [sys.executable, *command, "import datasets; print(datasets.__file__, datasets.__version__)"],
        cwd=cwd, capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    return done.stdout


def test_import_datasets_is_hugging_faces(root):
    datasets = pytest.importorskip("datasets", minversion="2.0")
    assert "site-packages" in datasets.__file__  # under pytest
    assert "site-packages" in _where_datasets_is(root, "-c")  # from the root, with agent_envs as it is installed here


def _allowed(module: str) -> tuple[str, ...] | None:
    """Prefixes within agent_envs that a module may import, None for no limit."""
    core = ("agent_envs",)
    part = module.split(".")[1] if "." in module else ""
    return {
        "cli": None,
        "commands": None,
        "envs": (*core, "agent_envs.envs", "agent_envs.datasets"),
        "datasets": (*core, "agent_envs.datasets"),
        "wrappers": (*core, "agent_envs.wrappers"),
        "adapters": (*core, "agent_envs.wrappers", "agent_envs.adapters"),
    }.get(part, core)


def test_imports_only_point_down(root):
    layers = ("envs", "datasets", "wrappers", "adapters", "cli", "commands")
    wrong = []
    for module, path in _module_files(root).items():
        allowed = _allowed(module)
        if allowed is None:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path}: relative import"
                names = [node.module or ""]
                if node.module == "agent_envs":
                    names = [f"agent_envs.{alias.name}" for alias in node.names]
            else:
                continue
            for name in names:
                layer = name.split(".")[1] if name.startswith("agent_envs.") else ""
                if layer in layers and not name.startswith(tuple(a for a in allowed if a != "agent_envs")):
                    wrong.append(f"{module} imports {name}")
    assert wrong == []


def _public_modules() -> list[str]:
    names = [m.name for m in pkgutil.walk_packages(agent_envs.__path__, "agent_envs.", onerror=lambda _: None)]
    return ["agent_envs", *(n for n in names if "agent_envs.adapters.verl" not in n and not n.endswith("__main__"))]


@pytest.mark.parametrize("name", _public_modules())
def test_all_is_sorted_and_exact_and_examples_run(name):
    try:
        module = importlib.import_module(name)
    except ImportError as e:
        pytest.skip(f"needs an extra: {e}")
    public = getattr(module, "__all__", None)
    if public is not None:
        # Sorted as ruff sorts: constants, classes, the rest.
        assert sorted(public, key=lambda n: (not n.isupper(), not n[:1].isupper(), n)) == list(public)
        assert len(set(public)) == len(public)
        for attribute in public:
            getattr(module, attribute)
        defined = {
            key
            for key, value in vars(module).items()
            if not key.startswith("_")
            and (inspect.isclass(value) or inspect.isfunction(value))
            and value.__module__ == name
        }
        assert defined <= set(public), f"{name}: public names missing from __all__"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert doctest.testmod(module, optionflags=doctest.ELLIPSIS).failed == 0


def test_importing_the_package_loads_nothing_heavy():
    code = "import sys, agent_envs; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert HEAVY & set(done.stdout.split()) == set()


def _checkout(root, target, *, links=True):
    """A copy of what git knows of the checkout: a build folder left in it would leak into wheels."""
    tracked = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root, capture_output=True, text=True, check=True,
    ).stdout.split("\0")  # fmt: skip
    for name in filter(None, tracked):
        if (root / name).exists() and (links or not (root / name).is_symlink()):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, target / name, follow_symlinks=False)
    return target


@pytest.mark.slow
def test_a_wheel_holds_every_file_once(root, tmp_path):
    wheel = _wheel(_checkout(root, tmp_path / "source"), tmp_path / "dist")
    names = zipfile.ZipFile(wheel).namelist()
    assert len(names) == len(set(names))
    modules = {n for n in names if n.endswith(".py")}
    expected = {
        f"agent_envs/{p.relative_to(root)}" if p.relative_to(root).parts[0] in TOP else str(p.relative_to(root))
        for p in _module_files(root).values()
    }
    assert modules == expected
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True).stdout
    data = {
        n
        for n in tracked.split("\0")
        if n.startswith(("agent_envs/", "adapters/")) and n.endswith((".yaml", ".sh", ".html", ".txt"))
    }
    assert data and {n if n.startswith("agent_envs") else f"agent_envs/{n}" for n in data} | {
        "agent_envs/py.typed"
    } <= set(names)
    assert {n.split("/")[0] for n in names if ".dist-info" not in n} == {"agent_envs"}


@pytest.mark.slow
@pytest.mark.parametrize("links", [True, False])
def test_a_regular_install_keeps_hugging_faces_datasets(root, tmp_path, links):
    """Also from a checkout whose links were lost, as in an archive."""
    source = _checkout(root, tmp_path / "source", links=links)
    target = tmp_path / "site"
    wheel = _wheel(source, tmp_path / "dist")
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", target, wheel], check=True, timeout=300
    )
    code = (
        f"import sys; sys.path.insert(0, {str(target)!r}); "
        "import datasets, agent_envs, agent_envs.datasets.gsm8k.rows as g; "
        "import agent_envs.adapters.verl, agent_envs.wrappers; print(datasets.__file__, g.__file__)"
    )
    pytest.importorskip("datasets")
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    hugging_face, ours = done.stdout.split()
    assert str(target) not in hugging_face and ours.startswith(str(target))


def _wheel(source: Path, out: Path) -> Path:
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--wheel-dir", out, source],
        check=True, timeout=600, cwd=source,
    )  # fmt: skip
    (wheel,) = out.glob("agent_envs-*.whl")
    return wheel
