"""Strategies that split many classes into binary problems, and combine the answers."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import combinations
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.special import logsumexp

from postlin._typing import Array
from postlin.estimator.fits import BinaryFit


class BinaryTask(NamedTuple):
    """A binary problem: rows of the data, and which of them are labelled +1."""

    name: str
    rows: np.ndarray
    positive: np.ndarray


class Decomposition(ABC):
    """Many classes as binary problems, whose answers are combined."""

    name: ClassVar[str]

    def __init__(self, n_classes: int, estimators: Sequence[BinaryFit]) -> None:
        self.n_classes = n_classes
        self.estimators_ = list(estimators)

    @staticmethod
    @abstractmethod
    def tasks(classes: Array, codes: np.ndarray) -> list[BinaryTask]:
        """The binary problems, for labels given as indices of classes."""

    @abstractmethod
    def combine(self, log_p: Array) -> Array:
        """Class probabilities (n, C) from the problems' log probabilities (n, problems, 2)."""

    def predict_proba(self, X: np.ndarray) -> Array:
        """Class probabilities at the rows of X."""
        return self.combine(np.stack([e.log_probabilities(X) for e in self.estimators_], axis=1))

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Indices of the most probable classes."""
        return np.asarray(np.argmax(self.predict_proba(X), axis=1))

    def loo_predict_proba(self, X: np.ndarray) -> Array:
        """Leave-one-out class probabilities of the training rows.

        A problem that a row has no part in predicts it like any new row.
        """
        log_p = np.empty((len(X), len(self.estimators_), 2))
        for k, estimator in enumerate(self.estimators_):
            log_p[estimator.rows, k] = estimator.loo_log_probabilities()
            unseen = np.setdiff1d(np.arange(len(X)), estimator.rows)
            if len(unseen):
                log_p[unseen, k] = estimator.log_probabilities(X[unseen])
        return self.combine(log_p)


class OneVsRest(Decomposition):
    """Each class against all others; probabilities are those of each class, normalised."""

    name: ClassVar[str] = "one_vs_rest"

    @staticmethod
    def tasks(classes: Array, codes: np.ndarray) -> list[BinaryTask]:
        """One binary problem for every class."""
        rows = np.arange(len(codes))
        return [
            BinaryTask(f"{label} against the rest", rows, codes == c) for c, label in enumerate(classes)
        ]

    def combine(self, log_p: Array) -> Array:
        """The normalised probabilities, computed in logarithms, where no class is too improbable."""
        log_plus = log_p[:, :, 1]
        return np.asarray(np.exp(log_plus - logsumexp(log_plus, axis=1, keepdims=True)))


class OneVsOne(Decomposition):
    """Each class against each other; probabilities by pairwise coupling.

    Two classes make one pair, whose probabilities are used as they are.
    """

    name: ClassVar[str] = "one_vs_one"

    @staticmethod
    def tasks(classes: Array, codes: np.ndarray) -> list[BinaryTask]:
        """One binary problem for every pair of classes; the later class is the positive one."""
        tasks = []
        for i, j in combinations(range(len(classes)), 2):
            rows = np.flatnonzero((codes == i) | (codes == j))
            tasks.append(BinaryTask(f"{classes[j]} against {classes[i]}", rows, codes[rows] == j))
        return tasks

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Indices of the most probable classes; the sign of the mean tells where that is enough."""
        only = self.estimators_[0]
        if self.n_classes == 2 and only.latent_likelihood.symmetric:
            return (only.latent_mean(X) > 0).astype(int)
        return super().predict(X)

    def combine(self, log_p: Array) -> Array:
        """The coupled probabilities."""
        if self.n_classes == 2:
            return np.exp(log_p[:, 0])
        return couple(np.exp(log_p), self.n_classes)


def couple(pairs: Array, n_classes: int) -> Array:
    """Class probabilities p that come closest to the pairwise ones r (Wu, Lin and Weng, 2004).

    Minimises Σᵢ Σⱼ (rⱼᵢ pᵢ − rᵢⱼ pⱼ)² under Σ p = 1; ``pairs`` is an array (n, pairs, 2) that holds
    rᵢⱼ and rⱼᵢ for i < j.
    """
    n, C = len(pairs), n_classes
    r = np.zeros((n, C, C))
    for k, (i, j) in enumerate(combinations(range(C), 2)):
        r[:, i, j], r[:, j, i] = pairs[:, k, 0], pairs[:, k, 1]
    system = np.zeros((n, C + 1, C + 1))
    system[:, :C, :C] = -r * r.transpose(0, 2, 1)
    diagonal = np.arange(C)
    system[:, diagonal, diagonal] = (r**2).sum(axis=1)
    system[:, C, :C] = system[:, :C, C] = 1.0
    # a pseudo-inverse: pairs that are certain of everything leave some of p undetermined
    p = np.maximum(np.linalg.pinv(system, hermitian=True)[:, :C, C], 0.0)
    probabilities: Array = p / p.sum(axis=1, keepdims=True)
    return probabilities


#: The decompositions by name, as ``multi_class="one_vs_rest"``.
REGISTRY: dict[str, type[Decomposition]] = {d.name: d for d in (OneVsRest, OneVsOne)}
