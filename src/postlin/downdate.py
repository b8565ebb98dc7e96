"""Sites of negative precision, added to the posterior of the others."""

import numpy as np
from scipy.linalg import lapack, solve_triangular

from postlin._typing import Array
from postlin.exceptions import NotPositiveDefiniteError
from postlin.triangles import diagonal_of


class Downdate:
    """What sites of negative precision change about the posterior of the others."""

    def __init__(self, tau: Array, negative: np.ndarray, covariance: Array) -> None:
        """``covariance`` holds the columns of the negative sites, given the others alone."""
        self.negative = negative
        strength = np.sqrt(-tau[negative])
        columns = covariance * strength
        downdate = -strength[:, None] * columns[negative]
        diagonal_of(downdate)[:] += 1.0
        factor, failed = lapack.dpotrf(downdate, lower=1, clean=1)
        if failed:
            raise NotPositiveDefiniteError("negative sites outweigh the prior and the other sites.")
        self.half_log_det = float(np.log(factor.diagonal()).sum())
        #: Σ = Σ₊ + spreadᵀ spread
        self.spread: Array = solve_triangular(factor, columns.T, lower=True)
        self.widening: Array = np.einsum("ij,ij->j", self.spread, self.spread)
        # (I − Q₊K) rows of the negative sites, for the predictive variance
        response = -np.maximum(tau, 0.0) * columns.T
        response[np.arange(len(negative)), negative] += strength
        self.response: Array = solve_triangular(factor, response, lower=True)

    def shift(self, target: Array) -> Array:
        """By how much the mean moves."""
        moved: Array = self.spread.T @ (self.spread @ target)
        return moved
