"""What a pass moves the state by, in units of the present posterior."""

from typing import NamedTuple

import numpy as np

from postlin._typing import Array
from postlin.sparse.passes import Evidence, Update
from postlin.sparse.posterior import SparsePosterior


class Residual(NamedTuple):
    """What a pass moves the state by: in units of the posterior, and as it is."""

    E: Array
    e: Array
    B: Array
    b: Array

    @property
    def size(self) -> float:
        """max(‖E‖, ‖e‖): bounds the relative change of every marginal."""
        return float(max(np.linalg.norm(self.E), np.linalg.norm(self.e)))

    def turned_from(self, previous: "Residual") -> float:
        """The cosine between this and the one before: negative when iterates swing."""
        here = np.concatenate([self.E.ravel(), self.e])
        before = np.concatenate([previous.E.ravel(), previous.e])
        norms = float(np.linalg.norm(here) * np.linalg.norm(before))
        return float(here @ before) / norms if norms > 0 else 1.0


def residual_of(posterior: SparsePosterior, update: Update | Evidence) -> Residual:
    """From what a pass has added up."""
    factor = posterior.factor
    inverse = factor.inverse
    E = update.precision + inverse @ inverse.T
    E[np.diag_indices_from(E)] -= 1.0
    # L_B⁻¹(b' − B'w̄), with B' = I + Σ τ'RRᵀ and b' − Σ τ'RRᵀw̄ = Σ (ν' − τ'μ)R
    e = update.pull - inverse @ posterior.coefficients
    L = factor.L
    dB = L @ E @ L.T
    return Residual(E, e, 0.5 * (dB + dB.T), L @ e + dB @ posterior.coefficients)
