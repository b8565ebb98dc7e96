"""``infer``: the whole method for one covariance matrix, with no hyperparameters."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from postlin import likelihoods, rules, schedules
from postlin._typing import Array, Marginals
from postlin._validation import (
    MATRICES,
    as_object,
    check_covariance,
    check_prior_mean,
    check_targets,
    check_tolerance,
    check_weights,
)
from postlin.inference.exact.evidence import (
    Adjoint,
    adjoint_at,
    by_covariance,
    log_evidence,
    site_scales,
)
from postlin.inference.exact.jacobian import LinearisedMap
from postlin.inference.exact.problem import Problem
from postlin.inference.result import EXACT, Solved
from postlin.inference.solver import solve
from postlin.likelihoods import BinaryLikelihood, ConditionalMoments, Likelihood
from postlin.linalg.arrays import Matrix, as_matrix, on_host, place_of
from postlin.linalg.threads import blas_threads
from postlin.rules.binary import Rule
from postlin.rules.scales import SiteScales
from postlin.rules.sites import Sites
from postlin.rules.weights import Observations
from postlin.schedules import Schedule

#: The default tolerance of the scaled residual, and the most factorisations spent on reaching it.
TOL = 1e-8
MAX_ITER = 60


@dataclass(frozen=True, eq=False, repr=False)
class Approximation(Solved):
    """A Gaussian approximation of the posterior over latent values, and all that follows from it."""

    problem: Problem

    @cached_property
    def log_evidence(self) -> float:
        """The approximate log marginal likelihood log p(y)."""
        return log_evidence(self.problem, self.solution.iterate, self._scales)

    @cached_property
    def _scales(self) -> SiteScales:
        return site_scales(self.problem, self.solution.iterate)

    def adjoint(self, accuracy: float) -> Adjoint:
        """What the gradient of the log evidence needs to know, to a relative accuracy."""
        return adjoint_at(self.problem, self.solution.iterate, accuracy, self._scales)

    @cached_property
    def _adjoint(self) -> Adjoint:
        return self.adjoint(EXACT)

    @property
    def can_sweep(self) -> bool:
        """Whether the sequential schedule can solve such problems: with NumPy's matrices."""
        return place_of(self.problem.K).is_host

    def evidence_gradient(self) -> Matrix:
        """∂ log evidence / ∂K, symmetric: dK changes the log evidence by the sum of its product.

        It is an array of K's kind.
        """
        return by_covariance(self.solution.iterate, self._adjoint)

    def evidence_gradient_by_parameters(self) -> dict[str, float]:
        """∂ log evidence by each parameter of the likelihood.

        ``NoisyThreshold`` has its ``epsilon``, ``WithNoise`` its ``variance``.
        """
        names = self.problem.likelihood.parameters
        return dict(zip(names, map(float, self._adjoint.by_parameters), strict=True))

    def spectral_radius(self) -> float:
        """Of the undamped parallel map at the solution: the certificate of local convergence.

        Below one, plain iteration from nearby converges to this solution; above one it does not.
        """
        with blas_threads(len(self.mean)):
            return LinearisedMap(self.solution.iterate).spectral_radius()

    def predict_latent(
        self, cross: Matrix, prior_variance: Array, prior_mean: Array | float | None = None
    ) -> Marginals:
        """Latent means and variances at new points.

        ``cross`` is k(training, new), n × n*, ``prior_variance`` the diagonal of k(new, new), and
        ``prior_mean`` that at the new points (None: the number that ``infer`` was given).
        """
        cross, prior_variance = as_matrix(cross, place_of(self.problem.K)), on_host(prior_variance)
        if cross.ndim != 2 or cross.shape[0] != len(self.mean):
            raise ValueError(
                f"cross must have shape (n, n_new) with n = {len(self.mean)} training points, "
                f"got {tuple(cross.shape)}; did you pass its transpose?"
            )
        if np.shape(prior_variance) not in ((), (cross.shape[1],)):
            raise ValueError(
                f"prior_variance must have shape ({cross.shape[1]},) to match cross, got "
                f"{np.shape(prior_variance)}."
            )
        if prior_mean is None:
            known = self.problem.prior_mean
            if np.ptp(known) > 0:
                raise ValueError("prior_mean must be given: infer had a different one at every point.")
            prior_mean = float(known[0])
        variance = np.asarray(prior_variance, float)
        at_new = on_host(prior_mean)
        latent: Marginals = self.solution.iterate.posterior.predict(cross, variance, at_new)
        return latent

    def predict_proba(
        self, cross: Matrix, prior_variance: Array, prior_mean: Array | float | None = None
    ) -> Array:
        """Probabilities of the label +1 at new points."""
        likelihood = self.problem.likelihood
        if not isinstance(likelihood, BinaryLikelihood):
            raise ValueError(f"{likelihood!r} has no label probabilities: use predict_moments.")
        plus, _ = likelihood.jets(*self.predict_latent(cross, prior_variance, prior_mean))
        return np.exp(plus.log_z)

    def predict_moments(
        self, cross: Matrix, prior_variance: Array, prior_mean: Array | float | None = None
    ) -> Marginals:
        """Mean and variance of y at new points; for labels ±1 those of the label."""
        likelihood = self.problem.likelihood
        latent = self.predict_latent(cross, prior_variance, prior_mean)
        if isinstance(likelihood, ConditionalMoments):
            return likelihood.predict(*latent)
        assert isinstance(likelihood, BinaryLikelihood)
        plus, minus = likelihood.jets(*latent)
        p, q = np.exp(plus.log_z), np.exp(minus.log_z)
        return Marginals(p - q, 4 * p * q)


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
) -> Approximation:
    """Approximate the posterior over latent values f ~ N(prior_mean, K) given labels y.

    Parameters
    ----------
    K : array of shape (n, n)
        Prior covariance of the latent values, the white-noise term included. Where it is a PyTorch
        tensor or a CuPy array all matrices stay on its device; vectors are NumPy's all the same.
    y : array of shape (n,)
        Labels −1 and +1; any real numbers for ``ConditionalMoments``.
    likelihood : "probit", "logit", "noisy_threshold" or a likelihood object
    inference : "pl", "ep", "laplace" or a rule object with options
    schedule : "parallel", "sequential", "hybrid" or a schedule object with options
    weights : array of shape (n,), optional
        Of how many observations of its latent value each label stands for; one if not given.
    prior_mean : float or array of shape (n,)
    tol : float
        Converged means: no site moves by more than this, in units of its marginal.
    max_iter : int
        The most Cholesky factorisations spent on that, those of rejected steps included.
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
    K = check_covariance(K, MATRICES)
    n = K.shape[0]
    problem = Problem(
        K,
        check_prior_mean(prior_mean, n),
        check_targets(y, n),
        as_object(likelihood, likelihoods.REGISTRY, Likelihood, "likelihood"),
        as_object(inference, rules.REGISTRY, Rule, "inference"),
        None if weights is None else Observations(check_weights(weights, n)),
    )
    problem.rule.check(problem.likelihood)
    problem.likelihood.check_targets(problem.y)
    plan = as_object(schedule, schedules.REGISTRY, Schedule, "schedule")
    plan.check(place_of(K))
    check_tolerance(tol, max_iter)
    solution = solve(problem, plan, start=check_start(start, n), tol=tol, max_iter=max_iter)
    result = Approximation(problem, solution)
    result.warn(plan, tol, max_iter, stacklevel=3)
    return result


def check_start(start: object, n: int) -> Sites | None:
    """Finite sites for n points, or None."""
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
    if not (np.isfinite(sites.tau).all() and np.isfinite(sites.nu).all()):
        raise ValueError("start holds NaN or infinity; pass start=None for a cold start.")
    return sites
