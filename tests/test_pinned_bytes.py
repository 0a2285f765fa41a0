"""What is drawn, played and written is the same byte for byte as `pinned_bytes.json` has it, a digest per name.

python tests/test_pinned_bytes.py --write [WORDS]   writes the digests of the names with any of these words, or all
python tests/test_pinned_bytes.py --show NAME       prints what a digest is made of, to compare two checkouts with diff

Environments are made by their ids and commands called by their names: the pins know no module that lies inside a part
of the package. Left out of the digests: the `episode_id` of episodes where it is drawn; of tracebacks all but the name
of the error's class and its message; times that were measured (`seconds`, the line `time` of an evaluation), and
places in a file behind them; where the pin's folder and the data lie, and checksums over such a place; which extras are
installed; of parquet files all but their schema and rows; of a training configuration the name of the plugin's module.
Digests whose names begin with `text/` are of words for people: they change where the words are meant to.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

PINNED = Path(__file__).with_name("pinned_bytes.json")


def _pinned() -> Any:
    """The package beside this file; other packages too install one that is called `tests`."""
    folder = Path(__file__).resolve().with_name("pinned")
    place = {"submodule_search_locations": [str(folder)]}
    spec = importlib.util.spec_from_file_location("pinned", folder / "__init__.py", **place)
    assert spec is not None and spec.loader is not None
    sys.modules["pinned"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for part in ("play", "wrapped", "files", "training", "real"):
        importlib.import_module(f"pinned.{part}")
    return module.pins


pins = _pinned()


def _parameter(name: str) -> Any:
    return pytest.param(name, marks=pytest.mark.slow if pins.PINS[name].slow else ())


@pytest.mark.parametrize("name", [_parameter(name) for name in sorted(pins.PINS)])
def test_bytes_are_what_they_were(name: str, request: pytest.FixtureRequest) -> None:
    for module in pins.PINS[name].needs:
        pytest.importorskip(module)
    if name.startswith("odd-actions/") and sys.version_info >= (3, 12):
        pytest.skip("how deep JSON may be nested differs between releases of Python")
    data = request.getfixturevalue("data_dir") if pins.PINS[name].data else None
    pinned = json.loads(PINNED.read_text())
    assert name in pinned, f"no digest yet: python tests/{Path(__file__).name} --write {name}"
    assert pins.digest(name, data) == pinned[name], f"compare: python tests/{Path(__file__).name} --show {name}"


def test_every_digest_has_its_pin() -> None:
    assert list(json.loads(PINNED.read_text())) == sorted(pins.PINS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--show", metavar="NAME")
    parser.add_argument("words", nargs="*")
    arguments = parser.parse_args()
    data = Path(os.environ.get("AGENT_ENVS_TEST_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")
    if arguments.show:
        sys.stdout.buffer.write(pins.made(arguments.show, data))
    elif arguments.write:
        pinned = json.loads(PINNED.read_text()) if PINNED.exists() else {}
        for name in sorted(pins.PINS):
            if not arguments.words or any(word in name for word in arguments.words):
                pinned[name] = pins.digest(name, data)
        kept = {name: pinned[name] for name in sorted(pinned) if name in pins.PINS}
        PINNED.write_text(json.dumps(kept, indent=0) + "\n")
    else:
        parser.print_help()


if __name__ == "__main__":
    main()
