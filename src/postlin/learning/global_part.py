"""What inference with inducing points knows of the rows, as the prior of problems of neighbours."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from postlin._typing import Array
from postlin.inference.local.prior import SparsePrior
from postlin.inference.local.problems import LocalProblems
from postlin.inference.sparse.posterior import SparsePosterior, State
from postlin.inference.sparse.row_sites import Method, RowMoments
from postlin.linalg.arrays import Matrix, on_host
from postlin.linalg.functions import functions
from postlin.linalg.stacks import all_finite
from postlin.rules.sites import Sites
from postlin.streaming.places import Integers


class Applied(NamedTuple):
    """Problems with the sparse posterior as prior, the sites of their rows in it, and which have it."""

    problems: LocalProblems
    sites: Sites  # of the labelled rows, (n, k), where the problems are
    found: np.ndarray


@dataclass(frozen=True, eq=False)
class GlobalPart:
    """What inference with inducing points knows of one binary problem."""

    posterior: SparsePosterior
    prior: SparsePrior
    method: Method
    members: np.ndarray | None = None  # the rows, by number, that it has seen; None for all

    @classmethod
    def of(
        cls, posterior: SparsePosterior, state: State, method: Method, members: np.ndarray | None
    ) -> "GlobalPart":
        """The global part of a posterior in a state."""
        return cls(posterior, SparsePrior(state.B, state.b), method, members)

    def has_seen(self, number: Integers) -> np.ndarray:
        """Whether each row, by number, is part of it; new rows have the number −1."""
        known = number >= 0
        return known if self.members is None else known & self.members[np.where(known, number, 0)]

    def coordinates(self, X: Matrix) -> tuple[Array, Array]:
        """R and λ of rows X (n, P, d), which the parts of all problems have in common."""
        n, size, d = X.shape
        R, lam, *_ = self.posterior.basis.coordinates(on_host(X).reshape(-1, d))
        return R.reshape(n, size, -1), lam.reshape(n, size)

    def applied(
        self,
        problems: LocalProblems,
        R: Array,
        lam: Array,
        y: Array,
        weight: Array,
        seen: np.ndarray,
    ) -> Applied:
        """The problems with the sparse posterior as prior.

        Their means are the prior means of their rows, queries included, and ``R`` and ``lam`` the
        coordinates of these. Rows that were ``seen`` lose their sites. A problem whose sites cannot be
        removed keeps the kernel's prior.
        """
        (n, size), lam = y.shape, lam.ravel()
        V = self.prior.whitened(R)
        flat = V.reshape(n * size, -1)
        h, w = self.posterior.h, np.where(weight > 0, weight, 1.0).ravel()
        prior_mean = np.asarray(on_host(problems.mean)).ravel()
        s = np.einsum("ij,ij->i", flat, flat)
        moments = RowMoments(flat @ h + prior_mean, s, lam, np.minimum(w, 1.0))
        sites, _ = self.method.solve(y.ravel(), moments)
        copies = np.where(weight > 0, np.maximum(weight, 1.0), 0.0).ravel()
        felt = copies * seen.ravel() / (1.0 + lam * sites.tau)

        def labelled(part: Array) -> Array:
            there: Array = problems.place.put(part.reshape(n, size)[:, :-1])
            return there

        put = problems.place.put
        # as Rᵀw feels them, to which the prior mean is added
        tau, nu = felt * sites.tau, felt * (sites.nu - sites.tau * prior_mean)
        beta, gamma = labelled(tau), labelled(nu)
        mean, covariance, found = self.prior.at(problems.covariance, put(R), put(V), beta, gamma)
        mean = mean + problems.mean
        f = functions(mean)
        found = found & f.all(f.isfinite(mean), axis=1) & all_finite(covariance)
        good = np.asarray(on_host(found))
        if not good.all():
            covariance = f.where(found[:, None, None], covariance, problems.covariance)
            mean = f.where(found[:, None], mean, problems.mean)
        own = Sites(labelled(copies * sites.tau), labelled(copies * sites.nu))
        return Applied(replace(problems, covariance=covariance, mean=mean), own, good)
