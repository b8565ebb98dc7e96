"""The exact approximation: its evidence, the gradient of it, predictions and leave-one-out.

The gradient takes one adjoint solve and one symmetric product. The evidence depends on K directly, and
through the sites and marginals at the fixed point, which depend on K. EP's evidence is stationary in
the sites; those of PL, CL and Laplace are not, so their gradient needs this implicit part.

The posterior without an observation is approximately its cavity, in which all other sites stay as they
are. Where they would hardly move, the cavity is the answer and costs nothing. Where removing the
observation moves them, they are solved again from their present values, which takes two or three
factorisations for each such row. Where that does not converge, the cavity is the answer too, and where
the approximation itself has not converged it is so for all rows: the sites are not solved then.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from postlin._typing import Array, Marginals, cached_property, override
from postlin.exceptions import ImproperCavityError, NotPositiveDefiniteError
from postlin.inference.exact.expansion import TRUSTED, Expansion, expanded
from postlin.inference.exact.problem import ExactIterate, ExactMap, ExactProblem
from postlin.inference.result import EXACT, Adjoint, SiteApproximation
from postlin.inference.solver import solve
from postlin.likelihoods.base import BinaryLikelihood
from postlin.likelihoods.conditional_moments import ConditionalMoments
from postlin.linalg.arrays import Matrix, as_matrix, copied, diagonal_of, on_host, place_of
from postlin.linalg.threads import blas_threads
from postlin.linalg.triangles import panels
from postlin.rules.scales import SiteScales
from postlin.rules.sites import Sites, SiteView
from postlin.schedules import Schedule

#: The evidence of EP is unusable where the residual is above the tolerance and above this.
_LOST = 0.1


def adjoint_at(
    problem: ExactProblem, iterate: ExactIterate, scales: SiteScales, accuracy: float
) -> Adjoint:
    """Solve the adjoint of the fixed-point equation to a relative accuracy."""
    v = iterate.posterior.variance
    sigma = np.sqrt(v)
    units = np.array([v, sigma])
    # the units of ExactMap: dm/√v, dv/v, v dτ, √v (dν − m dτ)
    by_mean, by_variance, by_tau, by_shift = scales.gradient * np.array([sigma, v, 1 / v, 1 / sigma])
    linearised = ExactMap(problem, iterate)
    seed = linearised.posterior_adjoint(by_mean, by_variance) + np.concatenate([by_tau, by_shift])
    solution, _ = linearised.solve_transposed(seed, rtol=accuracy)
    through_mean, through_variance = linearised.local_adjoint(solution)
    adjoint = units * solution.reshape(2, -1)
    proposal = iterate.proposal
    changes = problem.rule.changes(problem.likelihood, problem.y, proposal.at)
    by_parameters = [
        np.sum(adjoint * proposal.by_parameter(change)) + direct.sum()
        for change, direct in zip(changes, scales.by_parameters, strict=True)
    ]
    return Adjoint(
        (by_mean + through_mean) / sigma,
        (by_variance + through_variance) / v,
        np.array(by_parameters),
        float(np.sum(adjoint * iterate.move)),
    )


#: From an approximation and its adjoint to the derivatives by the free log-parameters.
PullBack = Callable[["ExactApproximation", Adjoint], Array]


@dataclass(frozen=True, eq=False, repr=False)
class ExactApproximation(SiteApproximation[ExactProblem, ExactIterate]):
    """The approximation that exact inference makes for two classes, or for conditional moments."""

    is_plain: bool = False  # whether the schedule prescribes the number of iterations

    @property
    @override
    def is_unusable(self) -> bool:
        # the evidence jumps where sites that a policy changes come and go without end
        restless = bool(self.record.overruled.any())
        far = self.residual > _LOST and self.problem.rule.needs_fixed_point
        lost = not self.converged and (far or restless)
        return (lost or super().is_unusable) and not self.is_plain

    def examined(self) -> "ExactApproximation":
        """Return this approximation, with a record that says so where its evidence is none.

        A policy of EP can hold sites anywhere, and far from a fixed point, or with repaired sites, the
        evidence can take any value.
        """
        if self.is_clean or self.is_plain:
            return self
        doubt = self.problem.rule.doubt(self.iterate.proposal.overruled)
        labels = isinstance(self.problem.likelihood, BinaryLikelihood)
        if not doubt and labels and not self.log_evidence <= 0.0:
            doubt = f"the log evidence is {self.log_evidence:.4g}, but no probability is above 1"
        return replace(self, record=replace(self.record, doubt=doubt)) if doubt else self

    @cached_property
    def _scales(self) -> SiteScales:
        return self.problem.scales(self.iterate)

    @cached_property
    @override
    def log_evidence(self) -> float:
        return self.problem.log_evidence(self.iterate, self._scales)

    @override
    def adjoint(self, accuracy: float) -> Adjoint:
        return adjoint_at(self.problem, self.iterate, self._scales, accuracy)

    @cached_property
    def _adjoint(self) -> Adjoint:
        with blas_threads(len(self.mean)):
            return self.adjoint(EXACT)

    def check_correction(self) -> None:
        """Raise ``ValueError`` where there is no correction, with the reason."""
        self.problem.rule.check_correction(self.problem.likelihood)
        self.problem.weights.check_correction()

    @cached_property
    def _expansion(self) -> Expansion:
        with blas_threads(len(self.mean)):
            return expanded(self.problem, self.iterate)

    @property
    def _known_expansion(self) -> Expansion:
        try:
            self.check_correction()
        except ValueError as error:
            raise AttributeError(str(error)) from None
        return self._expansion

    @property
    @override
    def correction(self) -> float:
        return self._known_expansion.log_evidence - self.log_evidence

    @property
    @override
    def is_trustworthy(self) -> bool:
        return self.is_correction_trustworthy and abs(self.correction) <= TRUSTED

    @property
    @override
    def is_correction_trustworthy(self) -> bool:
        return self._known_expansion.is_trustworthy

    def corrected_log_probabilities(
        self, cross: Matrix, prior_variance: Array, prior_mean: Array | float = 0.0
    ) -> Array:
        """Corrected log probabilities of −1 and +1 at new points, (2, new)."""
        self.check_correction()
        return self._expansion.log_probabilities(cross, prior_variance, prior_mean)

    def by_covariance(self, adjoint: Adjoint) -> Matrix:
        """∂ log evidence / ∂K from an adjoint, symmetric."""
        return self.iterate.posterior.pull_back(adjoint.mean_bar, adjoint.variance_bar)

    def evidence_gradient(self) -> Matrix:
        """∂ log evidence / ∂K, symmetric, as an array of K's kind.

        A change dK changes the log evidence by the sum of its elementwise product with this.
        """
        with blas_threads(len(self.mean)):
            return self.by_covariance(self._adjoint)

    def evidence_gradient_by_parameters(self) -> dict[str, float]:
        """∂ log evidence by each parameter of the likelihood.

        ``NoisyThreshold`` has the parameter ``epsilon``, ``WithNoise`` the parameter ``variance``.
        """
        names = self.problem.likelihood.parameters
        return dict(zip(names, map(float, self._adjoint.by_parameters), strict=True))

    def spectral_radius(self) -> float:
        """The spectral radius of the undamped parallel map, which certifies local convergence.

        Below one, plain iteration from nearby converges to this solution; above one it does not.
        """
        with blas_threads(len(self.mean)):
            return ExactMap(self.problem, self.iterate).spectral_radius()

    def predict_latent(
        self, cross: Matrix, prior_variance: Array, prior_mean: Array | float | None = None
    ) -> Marginals:
        """Latent means and variances at new points.

        ``cross`` is k(training, new), n × n*, ``prior_variance`` the diagonal of k(new, new), and
        ``prior_mean`` that at the new points (None: the number that ``infer`` was given).
        """
        return self.iterate.posterior.predict(*self._new(cross, prior_variance, prior_mean))

    def _new(
        self, cross: Matrix, prior_variance: Array, prior_mean: Array | float | None
    ) -> tuple[Matrix, Array, Array | float]:
        """What ``predict_latent`` takes, checked, where K is."""
        n, cross = len(self.mean), as_matrix(cross, place_of(self.problem.K))
        variance = np.asarray(on_host(prior_variance), float)
        if cross.ndim != 2 or cross.shape[0] != n:
            raise ValueError(
                f"cross must have shape (n, n_new) with n = {n} training points, "
                f"got {tuple(cross.shape)}; did you pass its transpose?"
            )
        if variance.shape not in ((), (cross.shape[1],)):
            raise ValueError(
                f"prior_variance must have shape ({cross.shape[1]},) to match cross, got "
                f"{variance.shape}."
            )
        if prior_mean is None:
            known = self.problem.prior_mean
            if np.ptp(known) > 0:
                raise ValueError("prior_mean must be given: infer had a different one at every point.")
            prior_mean = float(known[0])
        return cross, variance, on_host(prior_mean)

    def predict_proba(
        self,
        cross: Matrix,
        prior_variance: Array,
        prior_mean: Array | float | None = None,
        *,
        corrected: bool = False,
    ) -> Array:
        """Probabilities of the label +1 at new points, with ``corrected`` closer to the exact ones."""
        likelihood = self.problem.likelihood
        if not isinstance(likelihood, BinaryLikelihood):
            raise ValueError(f"{likelihood!r} has no label probabilities: use predict_moments.")
        if corrected:
            new = self._new(cross, prior_variance, prior_mean)
            return np.asarray(np.exp(self.corrected_log_probabilities(*new)[1]))
        plus, _ = likelihood.jets(*self.predict_latent(cross, prior_variance, prior_mean))
        return np.exp(plus.log_z)

    def predict_moments(
        self, cross: Matrix, prior_variance: Array, prior_mean: Array | float | None = None
    ) -> Marginals:
        """Mean and variance of y, or of the label ±1, at new points."""
        likelihood = self.problem.likelihood
        latent = self.predict_latent(cross, prior_variance, prior_mean)
        if isinstance(likelihood, ConditionalMoments):
            return likelihood.predict(*latent)
        assert isinstance(likelihood, BinaryLikelihood)
        plus, minus = likelihood.jets(*latent)
        p, q = np.exp(plus.log_z), np.exp(minus.log_z)
        return Marginals(p - q, 4 * p * q)


#: A cavity is used where removing the observation moves no other site by more than this, in units of
#: its marginal.
_SMALL = 0.02
#: The tolerance to which the other sites are solved, and the most factorisations that a row may take.
#: On crab, thyroid and ionosphere, with all rules and likelihoods, no row took more than 17.
_TOL, _EFFORT = 1e-4, 30
#: The number of rows whose effect on all others is computed together.
_ROWS = 64


def cavities(approximation: ExactApproximation) -> Marginals:
    """The latent marginal of each observation without its own site, all other sites being held.

    Where the cavity is improper, which it may be if the likelihood is not log-concave, the others tell
    nothing about the observation, and its marginal is that of the prior.
    """
    problem = approximation.problem
    view = problem.weights.one(approximation.iterate.posterior.view)
    proper, prior = view.gap > 0, problem.prior_view()
    with np.errstate(divide="ignore", invalid="ignore"):  # where it is improper
        cavity = view.cavity
    return Marginals(
        np.where(proper, cavity.mean, prior.mean), np.where(proper, cavity.variance, prior.variance)
    )


def left_out(approximation: ExactApproximation, schedule: Schedule, max_iter: int) -> Marginals:
    """The latent marginal of each observation without its own site, the other sites solved again.

    Rows whose other sites cannot be solved keep the cavity: all rows, if inference has not converged.
    """
    mean, variance = (part.copy() for part in cavities(approximation))
    if not approximation.converged:
        return Marginals(mean, variance)
    to_tolerance, effort = replace(schedule, iterations=None), min(max_iter, _EFFORT)
    for i in map(int, np.flatnonzero(disturbances(approximation) > _SMALL)):
        found = _without(approximation, i, to_tolerance, effort)
        if found is not None:
            mean[i], variance[i] = found
    return Marginals(mean, variance)


def disturbances(approximation: ExactApproximation) -> Array:
    """For each row, the largest move of any other site after one observation of the row is removed."""
    problem = approximation.problem
    view = problem.weights.one(approximation.iterate.posterior.view)
    covariance, found = approximation.covariance, np.empty(len(view.mean))
    between = problem.weights.between(view)  # covariances with other observations of the same row
    for rows in panels(len(found), _ROWS):
        part = np.array(on_host(covariance[rows, :]))
        diagonal_of(part[:, rows])[:] = between[rows]
        found[rows] = _moves(problem, view, rows, part).max(axis=1)
    return found


def _moves(problem: ExactProblem, view: SiteView, rows: slice, covariance: Array) -> Array:
    """The residual of all sites (columns) once each of ``rows`` has lost an observation."""
    gap, part = view.gap[rows, None], np.broadcast_to(view.part, view.mean.shape)[rows, None]
    with np.errstate(over="ignore", invalid="ignore"):  # a tiny gap, which ``sound`` excludes
        mean = view.mean - covariance * (part * view.pull[rows, None] / gap)
        variance = view.variance + covariance**2 * (part * view.tau[rows, None] / gap)
        left = 1.0 - view.part * view.tau * variance
    # a site whose cavity would be improper moves too far to be computed; it is shown as it is
    sound = (variance > 0) & np.isfinite(mean) & ((left > 0) | (not problem.rule.needs_cavity))
    mean, variance = np.where(sound, mean, view.mean), np.where(sound, variance, view.variance)
    after = SiteView(mean, variance, view.tau, view.nu, np.where(sound, left, view.gap), view.part)
    try:
        wanted = problem.rule.propose(problem.likelihood, problem.y, after).sites
    except (ImproperCavityError, ValueError):  # the posterior itself is improper, or moments overflow
        return np.full_like(mean, np.inf)
    d_tau = wanted.tau - view.tau
    d_shift = wanted.nu - view.nu - mean * d_tau
    moves = np.maximum(variance * np.abs(d_tau), np.sqrt(variance) * np.abs(d_shift))
    return np.where(sound & np.isfinite(moves), moves, np.inf)


def _without(
    approximation: ExactApproximation, i: int, schedule: Schedule, max_iter: int
) -> tuple[float, float] | None:
    """Mean and variance of the latent value of row i without one observation of it.

    None where the other sites could not be solved.
    """
    problem, (tau, nu) = approximation.problem, approximation.sites
    weights, left = problem.weights.without(i, len(tau))
    K = copied(problem.K)
    K[i, i] += float(weights.point(i).mean_noise - problem.weights.point(i).mean_noise)
    start = Sites(tau.copy(), nu.copy())
    start.tau[i] *= left
    start.nu[i] *= left
    fewer = replace(problem, K=K, weights=weights)
    try:
        iterate, record = solve(fewer, schedule, start=start, tol=_TOL, max_iter=max_iter)
    except NotPositiveDefiniteError:
        return None
    if not record.converged:
        return None
    view = iterate.posterior.view
    return weights.point(i).new(SiteView(*(part[i] for part in view[:5])))
