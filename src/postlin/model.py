"""A model: data, likelihood and rule, from which every kernel makes an approximation."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from sklearn.gaussian_process.kernels import Kernel

from postlin._typing import Array
from postlin._validation import check_covariance
from postlin.fixed_point import solve
from postlin.gradient import EXACT, adjoint_at, by_covariance
from postlin.inference import Approximation
from postlin.kernels import Gram, Term, WhiteSplit, bind, full_gram, split_white
from postlin.likelihoods import BinaryLikelihood, WithNoise
from postlin.problem import Problem
from postlin.rules import Rule
from postlin.schedules import Schedule
from postlin.sites import Sites


@dataclass
class Model:
    """Data, likelihood and rule; everything about a fit but the hyperparameters."""

    X: Any
    y: Array
    likelihood: BinaryLikelihood
    rule: Rule
    schedule: Schedule
    tol: float
    max_iter: int
    fold_noise: bool = False
    _term: Term | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """Distances are made again where they are needed again."""
        return {**self.__dict__, "_term": None}

    def check(self, kernel: Kernel) -> None:
        """Raise ``ValueError`` where the kernel makes no covariance of the data."""
        latent = split_white(kernel).smooth if self.fold_noise else kernel
        try:
            self._term = bind(latent, self.X)
            K = full_gram(self._term.gram(latent), len(self.y)).K
        except (TypeError, ValueError) as error:
            raise ValueError(f"the kernel {kernel} cannot be evaluated on X: {error}") from error
        try:
            check_covariance(K)
        except ValueError as error:
            raise ValueError(f"the kernel {kernel} makes no covariance of X: {error}") from None

    def forget(self) -> None:
        """Drop what is kept between kernels: distances, which are as large as a covariance."""
        self._term = None

    def infer(self, kernel: Kernel, start: Sites | None = None, tol: float | None = None) -> "Fitted":
        """The approximation at the parameters of ``kernel``."""
        split = split_white(kernel) if self.fold_noise else None
        latent_kernel = split.smooth if split else kernel
        if self._term is None:
            self._term = bind(latent_kernel, self.X)
        gram = full_gram(self._term.gram(latent_kernel), len(self.y))
        likelihood = WithNoise(self.likelihood, split.noise) if split else self.likelihood
        problem = Problem(gram.K, np.zeros_like(self.y), self.y, likelihood, self.rule)
        solution = solve(
            problem, self.schedule, start=start, tol=tol or self.tol, max_iter=self.max_iter
        )
        return Fitted(kernel, latent_kernel, gram, split, likelihood, Approximation(problem, solution))


class Fitted(NamedTuple):
    """An approximation with the kernel it belongs to."""

    kernel: Kernel
    latent_kernel: Kernel
    gram: Gram
    split: WhiteSplit | None
    likelihood: BinaryLikelihood
    approximation: Approximation

    def gradient(self) -> Array:
        """∂ log evidence by the kernel's free log-parameters, in scikit-learn's order."""
        return self.value_and_gradient(EXACT)[1]

    def value_and_gradient(self, accuracy: float) -> tuple[float, Array]:
        """The log evidence at the fixed point, to second order in the residual, and its gradient."""
        problem, iterate = self.approximation.problem, self.approximation.solution.iterate
        adjoint = adjoint_at(problem, iterate, accuracy)
        value = self.approximation.log_evidence
        if self.approximation.converged:  # if only to a loose tolerance
            value += adjoint.correction
        by_kernel = self.gram.pull_back(by_covariance(iterate, adjoint))
        if self.split is None:
            return value, np.array(by_kernel)
        levels = iter(np.exp(self.kernel.theta[list(self.split.is_white)]))
        rest = iter(by_kernel)
        return value, np.array(
            [adjoint.by_noise * next(levels) if white else next(rest) for white in self.split.is_white]
        )
