"""The second implementation that the lab's statistics are checked against: SciPy and statsmodels.

Prints what stands in the tests as expected values. To run it again:

    python3 -m venv venv && venv/bin/pip install scipy==1.17.1 statsmodels==0.15.0 pandas==3.1.1
    venv/bin/python crates/statistics/tests/reference/statistics.py > crates/statistics/tests/reference/expected.json
"""

import itertools
import json

import numpy as np
import pandas as pd
import scipy
import statsmodels
import statsmodels.formula.api as smf
from scipy import optimize, stats

FAST = [1012.0, 998.0, 1041.0, 1003.0, 1020.0]
SLOW = [401.0, 388.0, 420.0, 395.0, 409.0]

# Jain (1991), chapters 17 and 18: example 17.1 (2^2), the 2^3 design, and example 18.1 (2^2 with three repetitions). The first factor changes fastest.
JAIN_17_1 = [[15], [45], [25], [75]]
JAIN_17_3 = [[14], [22], [10], [34], [46], [58], [50], [86]]
JAIN_18_1 = [[15, 18, 12], [45, 48, 51], [25, 28, 19], [75, 75, 81]]

# Elmer and Ganz (2013), figure 12: median processing time in ms. Clients change slowest there: factors d, w, b, c.
P3 = [[6.80], [7.46], [6.87], [7.21], [5.11], [7.55], [5.90], [7.60],
      [14.08], [12.80], [13.42], [13.97], [12.43], [14.85], [12.88], [15.05]]

# A 2^3 design with four repetitions, made up for the test.
THREE = [[10.1, 10.9, 9.7, 10.4], [14.2, 13.6, 15.1, 14.4], [9.0, 9.6, 8.8, 9.1], [13.5, 12.9, 14.0, 13.3],
         [20.3, 21.1, 19.5, 20.8], [31.0, 30.2, 32.1, 30.7], [18.8, 19.9, 19.1, 18.5], [28.1, 29.3, 27.7, 28.8]]


def ratio_interval():
    """The ratios r for which the difference of the means, system - r * base, could be zero."""
    a, b = np.mean(FAST), np.mean(SLOW)
    half = lambda x: stats.t.ppf(0.975, len(x) - 1) * stats.sem(x)
    ha, hb = half(FAST), half(SLOW)
    pivot = lambda r: abs(a - r * b) - np.hypot(ha, r * hb)
    return [optimize.brentq(pivot, 0.1, a / b, xtol=1e-14), optimize.brentq(pivot, a / b, 10, xtol=1e-14)]


def factorial(cells, letters):
    """Effects by least squares on -1/+1 coded factors, variation by type-III sums of squares."""
    rows = []
    for index, responses in enumerate(cells):
        levels = {letter: 1 if index >> bit & 1 else -1 for bit, letter in enumerate(letters)}
        rows += [{**levels, "y": response} for response in responses]
    data = pd.DataFrame(rows)
    names = ["".join(subset) for size in range(1, len(letters) + 1) for subset in itertools.combinations(letters, size)]
    fit = smf.ols("y ~ " + " + ".join(":".join(name) for name in names), data).fit()
    total = float(((data.y - data.y.mean()) ** 2).sum())
    effects = {"I": float(fit.params["Intercept"])}
    shares, intervals = {}, {}
    for name in names:
        effects[name] = float(fit.params[":".join(name)])
        shares[name] = float(len(data) * effects[name] ** 2 / total)
    result = {"effects": effects, "shares": shares, "total": total}
    if fit.df_resid > 0:
        ends = fit.conf_int(0.05)
        for name in ["I", *names]:
            key = "Intercept" if name == "I" else ":".join(name)
            intervals[name] = [float(end) for end in ends.loc[key]]
        result |= {"intervals": intervals, "error_share": float(fit.ssr / total), "error_sum": float(fit.ssr)}
    return result


print(json.dumps({
    "versions": {"scipy": scipy.__version__, "statsmodels": statsmodels.__version__},
    "ratio": {"value": float(np.mean(FAST) / np.mean(SLOW)), "interval": ratio_interval()},
    "sleep": list(map(float, stats.t.interval(0.95, 9, 1.58, stats.sem([1.2, 2.4, 1.3, 1.3, 0, 1, 1.8, 0.8, 4.6, 1.4])))),
    "jain_17_1": factorial(JAIN_17_1, "ab"),
    "jain_17_3": factorial(JAIN_17_3, "abc"),
    "jain_18_1": factorial(JAIN_18_1, "ab"),
    "p3": factorial(P3, "dwbc"),
    "three": factorial(THREE, "abc"),
}, indent=1))
