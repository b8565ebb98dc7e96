"""How a fit went, and which rows are hard for it."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from postlin._typing import Array
from postlin.fit import Fit


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
