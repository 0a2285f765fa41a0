"""What the prepared interpreter imports, and programs that it runs once so that packages import the rest."""

from __future__ import annotations

__all__ = ["MATH_MODULES", "MATH_WARM_UP", "MODULES", "WARM_UP"]

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
    numpy numpy.linalg numpy.random numpy.fft numpy.polynomial numpy.ma numpy.testing mpmath sympy sympy.geometry.*
    sympy.stats.* sympy.ntheory.* sympy.solvers.*
"""
_DATA = """
    pandas dateutil.parser scipy scipy.constants scipy.fft scipy.integrate scipy.interpolate scipy.linalg scipy.ndimage
    scipy.optimize scipy.signal scipy.sparse scipy.sparse.linalg scipy.spatial scipy.special scipy.stats
"""

MATH_MODULES: tuple[str, ...] = (*_STANDARD.split(), *_MATH.split())
"""The standard library, numpy and sympy, where they are installed; sub-modules too where a name ends in ".*"."""
MODULES: tuple[str, ...] = (*MATH_MODULES, *_DATA.split())
"""All that a program may import."""

MATH_WARM_UP: tuple[str, ...] = (
    "import datetime; datetime.datetime.strptime('2024-01-31', '%Y-%m-%d').strftime('%A %B')",
    "import decimal, fractions, statistics; statistics.linear_regression([1, 2, 3], [2, 4, 7])",
    "import logging; logging.getLogger('x').debug('x')",
    "import re; re.sub(r'(?i)a+', 'b', 'AAA'); print(f'{1234567.891:,.2f} {0.256:.1%}')",
    "try: 1 / 0\nexcept ZeroDivisionError:\n import traceback; traceback.format_exc()",
    """
import numpy as np
a = np.arange(9.0).reshape(3, 3) + np.eye(3)
print(np.linalg.solve(a, [1, 2, 3]), np.linalg.inv(a), np.linalg.eig(a), np.linalg.svd(a), np.fft.fft(a))
np.random.seed(0)
print(np.random.rand(3), np.random.default_rng(0).normal(size=3), np.polyfit([1, 2, 3], [1, 4, 9], 2))
print(np.roots([1, -3, 2]), np.histogram([1, 2]), np.percentile([1, 2], 50), np.unique([1, 1]), np.ma.array([1]))
""",
    """
from sympy import *
x, y, n, k = symbols("x y n k")
f, g = Function("f"), Function("g")
print(solve(x**2 - 5*x + 6, x), solve([Eq(x + y, 10), Eq(x - y, 2)], [x, y]), solveset(x**2 - 1, x, S.Reals))
print(integrate(x*sin(x), x), integrate(exp(-x**2), (x, -oo, oo)), diff(x**3), limit(sin(x)/x, x, 0))
print(series(exp(x), x, 0, 4), factor(x**2 - 1), expand((x + 1)**3), simplify(sin(x)**2 + cos(x)**2))
print(apart(1/(x**2 - 1)))
print(summation(k**2, (k, 1, n)), product(k, (k, 1, 4)), factorint(360))
print(list(primerange(1, 20)))
print(nsolve(cos(x) - x, 1), Matrix([[1, 2], [3, 4]]).inv(), Matrix([[2, 0], [0, 3]]).eigenvals(), N(pi, 30))
print(Rational(1, 3), latex(x**2/y), sympify("x**2 + 1"), pretty(x/y), lambdify(x, x**2)(3), binomial(10, 3))
print(isprime(97), divisors(12), nextprime(90))
print(dsolve(f(x).diff(x) - f(x), f(x)), rsolve(g(n + 1) - 2*g(n), g(n)))
print(solve(x**3 - x - 1, x), reduce_inequalities([x**2 < 4]), Triangle((0, 0), (1, 0), (0, 1)).area)
""",
    "from sympy.stats import Die, P, E\nX = Die('X', 6)\nprint(P(X > 3), E(X))\n",
    """
from sympy.abc import x, y
from sympy.solvers.diophantine import diophantine
print(diophantine(2*x + 3*y - 5))
""",
    """
from sympy import Abs, Poly, floor, solve, solve_univariate_inequality, sqrt, symbols
x = symbols("x", real=True)
print(solve_univariate_inequality(x**2 > 1, x), Poly(x**2 - 1).all_roots(), solve(Abs(x - 1) - 2), floor(sqrt(10)))
""",
    """
from sympy import mod_inverse, totient
from sympy.ntheory import discrete_log
from sympy.ntheory.modular import crt
print(crt([3, 5], [2, 3]), totient(10), mod_inverse(3, 7), discrete_log(41, 15, 7))
""",
)
"""Programs that make these import what they import only when used."""
WARM_UP: tuple[str, ...] = (
    *MATH_WARM_UP,
    """
import io
import pandas as pd
text = "a,b,c,d\\n1,x,2024-01-02,2.5\\n2,y,2024-02-03,\\n3,x,2024-03-04,1.5\\n"
t = pd.read_csv(io.StringIO(text), parse_dates=["c"])
print(t, t.dtypes, t.describe(), t.groupby("b").agg({"a": "sum", "d": "mean"}), t.sort_values("a"), t.to_string())
print(t.merge(t, on="b"), t.pivot_table(index="b", values="a", aggfunc="sum"), t["c"].dt.year, t["b"].str.upper())
print(t.query("a > 1"), t.isna().sum(), t.fillna(0), t.to_csv(), t.to_dict("records"), t.head().T)
print(pd.concat([t, t]), t.apply(lambda row: row["a"], axis=1), t["b"].value_counts(), t.drop_duplicates("b"))
print(t["a"].rolling(2).mean(), pd.to_numeric(t["a"]), pd.to_datetime("2024-01-01"), t.corr(numeric_only=True))
print(pd.date_range("2024-01-01", periods=3, freq="MS"), t.melt(id_vars="b"), pd.crosstab(t["a"], t["b"]))
print(t.set_index("c").resample("ME").sum(numeric_only=True), pd.cut(t["a"], 2), t.nlargest(2, "a"), t["a"].rank())
print(t["a"].quantile(0.5), t.sample(1), pd.Timedelta("1D"), t.iloc[0], t.loc[t["a"] > 1, ["b"]], t.to_json())
t.info()
""",
)
"""The same for all."""
