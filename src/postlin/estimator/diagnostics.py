"""Diagnostics of a fit: convergence, hard rows and the relevance of features."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from sklearn.gaussian_process.kernels import Kernel

from postlin._typing import Array, cached_property
from postlin.estimator.fits import Fit
from postlin.kernels import kernels_of, length_scales


class Relevance(NamedTuple):
    """Features ordered by relevance, the most relevant first.

    The relevance of a feature is its standard deviation divided by its length scale, which does not
    depend on the unit of the feature.
    """

    names: list[str]
    values: Array
    features: np.ndarray  # the indices of the features


def relevance(kernels: list[Kernel], spread: Array, names: list[str]) -> Relevance:
    """The relevance of features with the standard deviations ``spread``, averaged over the kernels.

    Features without ``names`` are called x0, x1 and so on. Raises ``ValueError`` if a kernel has no
    length scale for every feature.
    """
    d = len(spread)
    parts = [part for kernel in kernels for part in kernels_of(kernel)]
    values = spread * np.mean([_inverse_scales(part, d) for part in parts], axis=0)
    order = np.argsort(-values, kind="stable")
    names = names or [f"x{k}" for k in range(d)]
    return Relevance([names[k] for k in order], values[order], order)


def _inverse_scales(kernel: Kernel, d: int) -> Array:
    """1/length scale of each feature; the largest, if several parts of the kernel have one."""
    found = [1.0 / scale for scale in length_scales(kernel) if np.shape(scale) == (d,) and d > 1]
    if not found:
        raise ValueError(
            f"the kernel {kernel} has no length scale of its own for every feature: use for example "
            f"RBF(np.ones({d}))."
        )
    return np.asarray(np.max(found, axis=0))


class HardRow(NamedTuple):
    """A row of the training data that the model finds hard to explain."""

    row: int  # its index in the data passed to ``fit``
    loo_probability: float  # the probability of its label, predicted from all other rows
    site_precision: float  # τ: how strongly its label holds the latent value
    pull: float  # the size of ν − τ m: how strongly its label moves the posterior mean


@dataclass(frozen=True)
class Diagnostics:
    """How inference went at the learned hyperparameters, and which rows are hard."""

    fit: Fit
    kept: np.ndarray | None  # the rows passed to ``fit`` that have weight; None with inducing points

    @property
    def converged(self) -> bool:
        """Whether inference reached its tolerance."""
        return self.fit.record.converged

    @property
    def residuals(self) -> list[float]:
        """The residual after each iteration."""
        return self.fit.record.history.residuals

    @property
    def n_factorisations(self) -> int:
        """The Cholesky factorisations of the last inference; with inducing points, its passes."""
        return self.fit.record.n_factorisations

    @property
    def n_evaluations(self) -> int:
        """The number of evaluations of the evidence in the search for hyperparameters."""
        return len(self.fit.evidence_path_)

    @cached_property
    def correction(self) -> float:
        """What to add to the log evidence, to second order in what the Gaussian approximation misses.

        Its size tells how far the approximation is from the exact posterior. It is known for exact
        inference by PL, CL and EP.
        """
        return self.fit.correction

    @property
    def is_trustworthy(self) -> bool:
        """Whether evidence and probabilities can be trusted: the corrected ones, if ``corrected``."""
        return self.fit.is_trustworthy

    @cached_property
    def spectral_radius(self) -> float:
        """The spectral radius of the undamped map; below one, plain iteration converges from nearby."""
        return self.fit.approximation_.spectral_radius()

    @cached_property
    def loo_probability(self) -> Array:
        """The leave-one-out probability of each row's own label, from the cavities alone."""
        own = self.fit.codes
        return np.asarray(np.exp(self.fit.cavity_log_probabilities()[np.arange(len(own)), own]))

    def hard_rows(self, n: int = 5, *, by: str = "loo_probability") -> list[HardRow]:
        """The rows with the lowest leave-one-out probability, or the strongest site or pull.

        ``by`` is "loo_probability", "site_precision" or "pull".
        """
        precision, pull = self.fit.site_strengths()
        loo = self.loo_probability
        columns = {"loo_probability": loo, "site_precision": precision, "pull": pull}
        if by not in columns:
            raise ValueError(f"by must be one of {', '.join(map(repr, columns))}, got {by!r}.")
        order = np.argsort(columns[by], kind="stable")[:: 1 if by == "loo_probability" else -1]
        rows = self.fit.row_numbers(self.kept)
        return [HardRow(int(rows[i]), *(float(c[i]) for c in columns.values())) for i in order[:n]]

    def __repr__(self) -> str:
        state = "converged" if self.converged else "not converged"
        return (
            f"<Diagnostics of {self.fit.name}: {state}, residual {self.fit.record.residual:.1e}, "
            f"{self.fit.effort}, evaluations: {self.n_evaluations}>"
        )
