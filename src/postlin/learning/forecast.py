"""How long fits will take, from a small factorisation that is measured here and now.

Measured with 1,000 and 2,000 rows of five features, on one thread, in units of a factorisation with all
variances: the first evaluation of the evidence with its gradient takes 6 to 9 (Laplace 5), later ones
4.2 to 5.6 (Laplace 2.8), and a search with one length scale 10 to 12 evaluations, with all rules,
likelihoods and schedules.
"""

import time

import numpy as np

from postlin.inference.exact.posterior import GaussianPosterior
from postlin.learning.progress import Costs
from postlin.linalg.arrays import HOST, Place
from postlin.linalg.functions import functions
from postlin.rules.sites import Sites

#: The rows of the factorisation that is measured, on the CPU and on a device.
_ROWS, _ON_DEVICE = 1200, 8000
#: Seconds of an evaluation that do not depend on the number of rows.
_LEAST = 0.02
#: Factorisations of the first evaluation of the evidence with its gradient, and of each later one.
OF_EXACT, OF_JOINT = (8.0, 4.8), (150.0, 100.0)
#: The same with inducing points, for n rows and m points, in factorisations of (n m²)^⅓ rows.
OF_SPARSE = 250.0, 170.0
#: Factorisations of 1,000 rows in a search with neighbours, for each kernel and problem: 800 among
#: 3,000 rows, and half as many more for a global part. Below so many rows it takes in proportion less:
#: 35 among 60 rows, 186 among 300.
_LOCAL, _LOCAL_ROWS = 1200.0, 2000
#: Evaluations of a search, and those that each length scale adds where features have their own.
_EVALUATIONS, _EACH = 12, 2.5
#: Evaluations of a search that another on fewer rows has led to its start.
LED = 6


def factorisation_seconds(n: float, place: Place = HOST) -> float:
    """The seconds of a posterior with its variances for n rows, from one of fewer, measured now."""
    m = int(min(n, _ROWS if place.is_host else _ON_DEVICE))
    x = place.put(np.linspace(0.0, 0.02 * m, m))
    f = functions(x)
    K = f.exp(-f.abs(x[:, None] - x[None, :]))
    sites = Sites(np.full(m, 0.5), np.zeros(m))
    taken = []
    for _ in range(2):  # the first time memory is new
        began = time.perf_counter()
        GaussianPosterior(K, np.zeros(m), sites).variance.sum()
        taken.append(time.perf_counter() - began)
    return float(min(taken) * (n / m) ** 3)


def evaluations(n_parameters: int, *, is_led: bool = False) -> int:
    """About how many evaluations of the evidence a search takes; with ``is_led`` in its last part."""
    if n_parameters == 0:
        return 1
    if is_led:
        return LED
    return round(_EVALUATIONS + _EACH * max(n_parameters - 3, 0))


def costs(size: float, units: tuple[float, float], n_parameters: int, place: Place = HOST) -> Costs:
    """What a search takes whose evaluations take so many factorisations of matrices of this size."""
    return priced(factorisation_seconds(size, place), units, n_parameters)


def priced(one: float, units: tuple[float, float], n_parameters: int, *, is_led: bool = False) -> Costs:
    """``costs``, if a factorisation takes so many seconds."""
    n = evaluations(n_parameters, is_led=is_led)
    return Costs(n, *(_LEAST + unit * one for unit in units))


def local_units(searches: float, rows: float) -> float:
    """A fit with neighbours in factorisations of 1,000 rows; it hardly grows beyond thousands of rows.

    A search is that of one kernel for one problem.
    """
    return searches * _LOCAL * min(rows / _LOCAL_ROWS, 1.0)
