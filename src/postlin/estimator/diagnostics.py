"""How a fit went, and which rows are hard for it."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from sklearn.gaussian_process.kernels import Kernel

from postlin._typing import Array
from postlin.estimator.fits import Fit
from postlin.kernels import kernels_of


class Relevance(NamedTuple):
    """Features ordered by relevance, the most relevant first.

    Relevance is the feature's standard deviation in length scales: how far the data reach, as the
    kernel measures it. It does not depend on the feature's unit.
    """

    names: list[str]
    values: Array
    features: np.ndarray  # their indices


def relevance(kernels: list[Kernel], spread: Array, names: list[str] | None) -> Relevance:
    """Of features with these standard deviations, averaged over kernels.

    ``ValueError`` where a kernel has no such scales.
    """
    d = len(spread)
    parts = [part for kernel in kernels for part in kernels_of(kernel)]
    values = spread * np.mean([_inverse_scales(part, d) for part in parts], axis=0)
    order = np.argsort(-values, kind="stable")
    names = names or [f"x{k}" for k in range(d)]
    return Relevance([names[k] for k in order], values[order], order)


def _inverse_scales(kernel: Kernel, d: int) -> Array:
    """1/length scale by feature: the largest, where several parts of the kernel have one."""
    found = [1.0 / scale for scale in _length_scales(kernel) if np.shape(scale) == (d,) and d > 1]
    if not found:
        raise ValueError(
            f"the kernel {kernel} has no length scale of its own for every feature: use for example "
            f"RBF(np.ones({d}))."
        )
    largest: Array = np.max(found, axis=0)
    return largest


def _length_scales(kernel: Kernel) -> list[Array]:
    """All length scales in a kernel, those of its parts included."""
    return [
        np.asarray(value)
        for name, value in kernel.get_params().items()
        if name.split("__")[-1] == "length_scale"
    ]


class HardRow(NamedTuple):
    """A row of the training data that the model has trouble with."""

    row: int  # of the data as passed to ``fit``
    loo_probability: float  # of its own label, as if it had not been seen
    site_precision: float  # how strongly its label holds the latent value
    pull: float  # the force with which it pulls at the rest


@dataclass(frozen=True)
class Diagnostics:
    """Inference at the hyperparameters that were learned."""

    fit: Fit
    kept: np.ndarray | None  # rows passed to ``fit`` that count, where that is known

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
        """Cholesky factorisations that the last inference took; with inducing points, passes."""
        return self.fit.record.n_factorisations

    @property
    def n_evaluations(self) -> int:
        """Evaluations of the evidence in the search for hyperparameters."""
        return len(self.fit.evidence_path_)

    @cached_property
    def spectral_radius(self) -> float:
        """Below one, plain undamped iteration would converge to this solution from nearby."""
        return self.fit.spectral_radius()

    @cached_property
    def loo_probability(self) -> Array:
        """The leave-one-out probability of each row's own label, from the cavities alone."""
        own = self.fit.codes
        p: Array = np.exp(self.fit.cavity_log_probabilities()[np.arange(len(own)), own])
        return p

    def hard_rows(self, n: int = 5, *, by: str = "loo_probability") -> list[HardRow]:
        """The rows with the lowest leave-one-out probability, or the strongest site or pull.

        ``by`` is "loo_probability", "site_precision" or "pull".
        """
        precision, pull = self.fit.site_strengths()
        columns = {
            "loo_probability": self.loo_probability,
            "site_precision": precision,
            "pull": pull,
        }
        if by not in columns:
            raise ValueError(f"by must be one of {', '.join(map(repr, columns))}, got {by!r}.")
        order = np.argsort(columns[by], kind="stable")
        order = order if by == "loo_probability" else order[::-1]
        rows = self.fit.row_numbers(self.kept)
        return [HardRow(int(rows[i]), *(float(c[i]) for c in columns.values())) for i in order[:n]]

    def __repr__(self) -> str:
        state = "converged" if self.converged else "not converged"
        return (
            f"<Diagnostics of {self.fit.name}: {state}, residual {self.fit.record.residual:.1e}, "
            f"{self.fit.effort}, evaluations: {self.n_evaluations}>"
        )
