"""Generated tasks, played episodes and written files are byte for byte what `pinned_bytes.json` has digests of.

python tests/test_pinned_bytes.py --write [WORDS]   write the digests whose names contain any of these words, or all
python tests/test_pinned_bytes.py --show NAME       print what a digest is computed from, to diff two checkouts

The pins create environments by id and call commands by name, so they do not depend on where modules are. Excluded from
the digests: random `episode_id`s; tracebacks, except for the exception's name and message; measured times (`seconds`,
the `time` line of an evaluation) and file offsets behind them; the paths of the pin's folder and of the data, and
checksums over them; which extras are installed; parquet files, except for their schema and rows; and the module name
of the plugin in a training configuration. Digests whose names begin with `text/` cover text for people: when that text
changes on purpose, write them again.
"""

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
    """Import the package `pinned` beside this file by its path: other packages install one named `tests` too."""
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
def test_bytes_are_what_they_were(name, request):
    for module in pins.PINS[name].needs:
        pytest.importorskip(module)
    if name.startswith("text/train"):
        request.getfixturevalue("settings_are_read_once")
    data = request.getfixturevalue("data_dir") if pins.PINS[name].data else None
    pinned = json.loads(PINNED.read_text())
    assert name in pinned, f"no digest yet: python tests/{Path(__file__).name} --write {name}"
    assert pins.digest(name, data) == pinned[name], f"compare: python tests/{Path(__file__).name} --show {name}"


def test_every_digest_has_its_pin():
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
