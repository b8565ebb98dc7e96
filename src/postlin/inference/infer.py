"""``infer``: the whole method for one covariance matrix, with no hyperparameters."""

import warnings

import numpy as np

from postlin import _validation, likelihoods, rules, schedules
from postlin._typing import Array
from postlin.inference.exact.evidence import ExactApproximation
from postlin.inference.exact.problem import ExactProblem
from postlin.inference.result import warnings_about
from postlin.inference.solver import solve
from postlin.likelihoods import Likelihood
from postlin.linalg.arrays import Matrix, on_host, place_of
from postlin.linalg.threads import blas_threads
from postlin.rules.binary import Rule
from postlin.rules.sites import Sites
from postlin.rules.weights import UNIT, Observations
from postlin.schedules import Schedule

#: The default tolerance of the residual, and the default limit on the number of factorisations.
TOL = 1e-8
MAX_ITER = 60


def infer(
    K: Matrix,
    y: Array,
    *,
    likelihood: str | Likelihood = "probit",
    inference: str | Rule = "pl",
    schedule: str | Schedule = "parallel",
    weights: Array | None = None,
    prior_mean: Array | float = 0.0,
    tol: float = TOL,
    max_iter: int = MAX_ITER,
    start: Sites | None = None,
) -> ExactApproximation:
    """Approximate the posterior over latent values f ~ N(prior_mean, K) given labels y.

    Parameters
    ----------
    K : array of shape (n, n)
        Prior covariance of the latent values, the white-noise term included. Where it is a PyTorch
        tensor or a CuPy array all matrices stay on its device; vectors are NumPy arrays in any case.
    y : array of shape (n,)
        Labels −1 and +1; any real numbers for ``ConditionalMoments``.
    likelihood : "probit", "logit", "noisy_threshold" or a likelihood object
        How a label depends on its latent value: p(y|f).
    inference : "pl", "cl", "ep", "laplace" or a rule object with options
        How the Gaussian site of each label is set: by posterior linearisation (statistical linear
        regression at the posterior marginal), cavity linearisation (the same at the cavity),
        expectation propagation (moment matching at the cavity) or Laplace's method (curvature at the
        mode).
    schedule : "parallel", "sequential", "hybrid" or a schedule object with options
        In which order sites are updated: all from the same posterior, one after another with the
        posterior updated in between, or first one after another and then all at once.
    weights : array of shape (n,), optional
        The number of observations of its latent value that each label stands for; one by default.
    prior_mean : float or array of shape (n,)
        The prior mean of the latent values.
    tol : float
        Inference has converged when no site moves by more than this, in units of its marginal.
    max_iter : int
        The largest number of Cholesky factorisations, including those of rejected steps.
    start : Sites, optional
        Where to begin, for example the ``sites`` of a similar problem.

    Examples
    --------
    >>> import numpy as np, postlin
    >>> x = np.linspace(-3, 3, 7)
    >>> K = 4 * np.exp(-0.5 * (x[:, None] - x) ** 2) + 0.1 * np.eye(7)
    >>> result = postlin.infer(K, np.sign(x + 0.5), likelihood="probit")
    >>> result.converged, round(result.log_evidence, 4)
    (True, -3.8495)

    """
    K = _validation.check_covariance(K, _validation.MATRICES)
    n = K.shape[0]
    problem = ExactProblem(
        K,
        _validation.check_prior_mean(prior_mean, n),
        _validation.check_targets(y, n),
        _validation.as_object(likelihood, likelihoods.REGISTRY, Likelihood, "likelihood"),
        _validation.as_object(inference, rules.REGISTRY, Rule, "inference"),
        UNIT if weights is None else Observations(_validation.check_weights(weights, n)),
    )
    problem.rule.check(problem.likelihood)
    problem.likelihood.check_targets(problem.y)
    order = _validation.as_object(schedule, schedules.REGISTRY, Schedule, "schedule")
    order.check(place_of(K))
    _validation.check_tolerance(tol, max_iter)
    sites = check_start(start, n)
    with blas_threads(n):
        iterate, record = solve(problem, order, start=sites, tol=tol, max_iter=max_iter)
        plain = order.iterations is not None
        found = ExactApproximation(record, problem, iterate, is_plain=plain).examined()
    on_cpu = place_of(K).is_host
    for message in warnings_about(found.record, problem.rule, order, tol, max_iter, can_sweep=on_cpu):
        warnings.warn(message, stacklevel=2)
    return found


def check_start(start: object, n: int) -> Sites | None:
    """The start as finite sites of n points, or None."""
    if start is None:
        return None
    try:
        sites = Sites(*(np.array(on_host(part), dtype=np.float64) for part in start))  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        raise ValueError(f"start must be Sites(tau, nu) or None, got {type(start).__name__}.") from None
    if sites.tau.shape != (n,) or sites.nu.shape != (n,):
        raise ValueError(
            f"start must hold sites for {n} points, got tau of shape {sites.tau.shape} and nu of "
            f"shape {sites.nu.shape}."
        )
    if not sites.are_finite():
        raise ValueError("start holds NaN or infinity; pass start=None for a cold start.")
    return sites
