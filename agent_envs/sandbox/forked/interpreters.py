"""The prepared interpreters: what each has imported, and which one a program needs."""

from __future__ import annotations

import re
import sys
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_envs.sandbox.forked import warm_up
from agent_envs.sandbox.forked.filters import filter_program

__all__ = ["INTERPRETERS", "Interpreter", "import_path", "needed"]


@dataclass(frozen=True, slots=True)
class Interpreter:
    """What a zygote imports before it takes the walls."""

    name: str
    """Its name."""
    packages: tuple[str, ...] = ()
    """The packages that a program may import in it, besides the standard library."""
    modules: tuple[str, ...] = ()
    """The modules to import, packages included; their sub-modules too where a name ends in ".*"."""
    warm_up: tuple[str, ...] = field(default=(), repr=False)
    """Programs that make packages import what they import only when used."""
    main: str = "zygote"
    """The module in `agent_envs.sandbox.inside` that is its process."""

    def settings(self) -> dict[str, Any]:
        """Return what its process is told, beside the walls that are wanted.

        Raises:
            BackendError: The filter without which it runs nothing cannot be built.
        """
        told = {"modules": self.modules, "warm_up": self.warm_up, "filter": filter_program().hex()}
        return {"path": import_path(), **told}


_STANDARD = """
    __future__ abc argparse array ast asyncio atexit base64 binascii bisect builtins bz2 calendar cmath cmd code
    codecs collections collections.abc colorsys configparser contextlib contextvars copy copyreg csv ctypes
    dataclasses datetime decimal difflib dis email encodings encodings.ascii encodings.idna encodings.latin_1
    encodings.utf_8_sig encodings.utf_16 encodings.cp1252 enum errno fcntl filecmp fnmatch fractions functools gc
    getopt getpass gettext glob graphlib gzip hashlib heapq hmac html html.entities html.parser importlib
    importlib.metadata importlib.util inspect io ipaddress itertools json keyword linecache locale logging lzma
    marshal math mimetypes mmap numbers operator optparse os os.path pathlib pickle pickletools pkgutil platform
    pprint profile queue quopri random re reprlib resource sched secrets select selectors shelve shlex shutil signal
    socket sqlite3 statistics stat string stringprep struct subprocess symtable sys sysconfig tempfile textwrap
    threading time timeit token tokenize traceback tracemalloc types typing unicodedata unittest unittest.mock
    urllib urllib.parse urllib.request uuid warnings wave weakref xml xml.dom.minidom xml.etree.ElementTree xml.sax
    zipfile zlib zoneinfo concurrent.futures multiprocessing _strptime multiprocessing.pool
    multiprocessing.shared_memory doctest pydoc tomllib bdb pdb
"""

_SYMPY_PARTS = "geometry stats ntheory solvers"
_SYMPY = ("sympy", "mpmath", *(f"sympy.{part}.*" for part in _SYMPY_PARTS.split()))
_NUMPY = ("numpy", "numpy.linalg", "numpy.random", "numpy.fft", "numpy.polynomial", "numpy.ma", "numpy.testing")

_PLAIN = Interpreter("plain", (), tuple(_STANDARD.split()), warm_up.STANDARD)
_MATH = Interpreter(
    "math",
    ("numpy", "sympy", "mpmath", "math_verify"),
    (*_PLAIN.modules, *_NUMPY, *_SYMPY, "math_verify"),
    (*_PLAIN.warm_up, *warm_up.NUMPY, *warm_up.SYMPY, *warm_up.MATH_VERIFY),
)
_DATA = Interpreter(
    "data",
    ("numpy", "pandas"),
    (*_PLAIN.modules, *_NUMPY, "pandas", "dateutil.parser"),
    (*_PLAIN.warm_up, *warm_up.NUMPY, *warm_up.PANDAS),
)
_ALL = Interpreter(
    "all",
    (*_MATH.packages, "pandas"),
    (*_MATH.modules, *_DATA.modules),
    (*_MATH.warm_up, *warm_up.PANDAS),
)

INTERPRETERS: tuple[Interpreter, ...] = (_PLAIN, _MATH, _DATA, _ALL)
"""From the smallest to the largest, which has everything."""

_PACKAGE = re.compile(r"\b(?:numpy|sympy|mpmath|math_verify|pandas)\b")


def needed(code: str, at_least: int = 0) -> int:
    """Return the number of the smallest interpreter that has what a program names, and all that `at_least` has.

    A package's name anywhere in the text counts, because an import may be written in many ways.

    >>> needed("print(1)"), needed("from sympy import solve"), needed("import pandas as pd"), needed("import pandas", 1)
    (0, 1, 2, 3)
    """
    names = {*_PACKAGE.findall(code), *INTERPRETERS[at_least].packages}
    return next(number for number, one in enumerate(INTERPRETERS) if names <= set(one.packages))


def import_path() -> list[str]:
    """Return where a zygote imports from: the standard library and the folders of installed packages."""
    standard = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")]
    shared = [str(Path(folder, "lib-dynload")) for folder in standard]
    zipped = [entry for entry in sys.path if entry.endswith(".zip")]
    packages = [entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")]
    return list(dict.fromkeys([*zipped, *standard, *shared, *packages]))
