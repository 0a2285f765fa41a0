"""What an interpreter imports before it runs programs, here or as WebAssembly."""

from __future__ import annotations

import contextlib
import importlib
import io
import pkgutil
import sys
import warnings

__all__ = ["prepare"]


def prepare(modules: list[str], warm_up: list[str]) -> list[str]:
    """Import the modules and run the programs that make them import the rest; return the top modules there are."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in modules:
            with contextlib.suppress(Exception):  # an optional module that does not work here
                package = importlib.import_module(name.removesuffix(".*"))
                if name.endswith(".*"):
                    modules += [f"{package.__name__}.{m.name}" for m in pkgutil.iter_modules(package.__path__)]
        for program in warm_up:
            with contextlib.suppress(Exception):
                exec(program, {"__name__": "__main__"})
    return sorted({name for name in sys.modules if "." not in name})
