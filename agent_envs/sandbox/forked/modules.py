"""What the prepared interpreter imports: the parts too that packages import only when they are used."""

from __future__ import annotations

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
_MATH = """
    numpy numpy.char numpy.core numpy.ctypeslib numpy.f2py numpy.fft numpy.linalg numpy.ma numpy.polynomial
    numpy.random numpy.rec numpy.strings numpy.testing mpmath sympy sympy.abc sympy.codegen.ast
    sympy.combinatorics.* sympy.concrete.* sympy.geometry.* sympy.integrals.* sympy.ntheory.* sympy.physics.matrices
    sympy.physics.units sympy.sets.* sympy.sets.handlers.* sympy.solvers.* sympy.stats.* sympy.tensor.tensor
"""
_DATA = """
    pandas pandas.core.methods.* pandas.core.reshape.* pandas.io.formats.* pyarrow.pandas_compat pyarrow.vendored.*
    dateutil.parser scipy scipy.constants scipy.fft scipy.integrate scipy.interpolate scipy.linalg scipy.ndimage
    scipy.optimize scipy.signal scipy.sparse scipy.sparse.linalg scipy.spatial scipy.special scipy.stats
"""

MATH_MODULES: tuple[str, ...] = (*_STANDARD.split(), *_MATH.split())
"""The standard library, numpy and sympy, where they are installed; sub-modules too where a name ends in ".*"."""
MODULES: tuple[str, ...] = (*MATH_MODULES, *_DATA.split())
"""All that a program may import."""
