"""Programs that a zygote runs once, so that packages import what they import only when it is used."""

from __future__ import annotations

__all__ = ["MATH_VERIFY", "NUMPY", "PANDAS", "STANDARD", "SYMPY"]

STANDARD = (
    "import datetime; datetime.datetime.strptime('2024-01-31', '%Y-%m-%d').strftime('%A %B')",
    "import decimal, fractions, statistics; statistics.linear_regression([1, 2, 3], [2, 4, 7])",
    "import logging; logging.getLogger('x').debug('x')",
    "import re; re.sub(r'(?i)a+', 'b', 'AAA'); print(f'{1234567.891:,.2f} {0.256:.1%}')",
    "try: 1 / 0\nexcept ZeroDivisionError:\n import traceback; traceback.format_exc()",
)
"""For the standard library."""

NUMPY = (
    """
import numpy as np
a = np.arange(9.0).reshape(3, 3) + np.eye(3)
print(np.linalg.solve(a, [1, 2, 3]), np.linalg.inv(a), np.linalg.eig(a), np.linalg.svd(a), np.fft.fft(a))
np.random.seed(0)
print(np.random.rand(3), np.random.default_rng(0).normal(size=3), np.polyfit([1, 2, 3], [1, 4, 9], 2))
print(np.roots([1, -3, 2]), np.histogram([1, 2]), np.percentile([1, 2], 50), np.unique([1, 1]), np.ma.array([1]))
""",
)
"""For numpy."""

SYMPY = (
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
from sympy.ntheory import discrete_log, mod_inverse, totient
from sympy.ntheory.modular import crt
print(crt([3, 5], [2, 3]), totient(10), mod_inverse(3, 7), discrete_log(41, 15, 7))
""",
)
"""For sympy."""

PANDAS = (
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
"""For pandas."""

MATH_VERIFY = (
    r"""
import math_verify as m
targets = [m.LatexExtractionConfig(), m.ExprExtractionConfig()]
golds = (r"$\frac{1}{2}$", "$[1,2)$", r"$\{1,2\}$", "$x=5$", r"$\sqrt{2}+1$", r"$\begin{pmatrix}1\\2\end{pmatrix}$")
for gold in golds:
    read = m.parse(gold, targets, parsing_timeout=None)
    m.verify(read, read, timeout_seconds=None)
    m.verify(read, m.parse("0.5", targets, parsing_timeout=None), timeout_seconds=None)
""",
)
"""For math-verify, where it is installed."""
