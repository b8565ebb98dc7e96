"""Many classes as problems with two: how they are taken apart and put together again."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import combinations
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.special import logsumexp

from postlin._typing import Array
from postlin.estimator.fits import BinaryFit


class Task(NamedTuple):
    """A problem with two classes: rows of the data, and which of them are labelled +1."""

    name: str
    rows: np.ndarray
    positive: np.ndarray


class Decomposition(ABC):
    """Problems with two classes in place of one with many, and their answers put together."""

    name: ClassVar[str]

    def __init__(self, n_classes: int, estimators: Sequence[BinaryFit]) -> None:
        self.n_classes = n_classes
        self.estimators_ = list(estimators)

    @staticmethod
    @abstractmethod
    def tasks(classes: Array, codes: np.ndarray) -> list[Task]:
        """The problems, for labels given as indices of classes."""

    @abstractmethod
    def combine(self, log_p: Array) -> Array:
        """Class probabilities (n, C) from the problems' log probabilities (n, problems, 2)."""

    def predict_proba(self, X: Any) -> Array:
        """Class probabilities at the rows of X."""
        return self.combine(np.stack([e.log_probabilities(X) for e in self.estimators_], axis=1))

    def predict(self, X: Any) -> np.ndarray:
        """Indices of the most probable classes."""
        return np.asarray(np.argmax(self.predict_proba(X), axis=1))

    def loo_predict_proba(self, X: Any) -> Array:
        """Class probabilities at the rows that were learned from, each as if it had not been.

        A problem that a row has no part in has not seen it, and predicts it as any other.
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
    def tasks(classes: Array, codes: np.ndarray) -> list[Task]:
        """One for every class."""
        rows = np.arange(len(codes))
        return [Task(f"{label} against the rest", rows, codes == c) for c, label in enumerate(classes)]

    def combine(self, log_p: Array) -> Array:
        """In logarithms: classes that are all improbable are compared all the same."""
        log_plus = log_p[:, :, 1]
        return np.asarray(np.exp(log_plus - logsumexp(log_plus, axis=1, keepdims=True)))


class OneVsOne(Decomposition):
    """Each class against each other; probabilities by pairwise coupling.

    With two classes there is one pair, and nothing to couple.
    """

    name: ClassVar[str] = "one_vs_one"

    @staticmethod
    def tasks(classes: Array, codes: np.ndarray) -> list[Task]:
        """One for every pair; the later class is the positive one."""
        tasks = []
        for i, j in combinations(range(len(classes)), 2):
            rows = np.flatnonzero((codes == i) | (codes == j))
            tasks.append(Task(f"{classes[j]} against {classes[i]}", rows, codes[rows] == j))
        return tasks

    def predict(self, X: Any) -> np.ndarray:
        """Of two classes, where the likelihood is symmetric, by the sign of the mean alone."""
        only = self.estimators_[0]
        if self.n_classes == 2 and only.latent_likelihood.symmetric:
            return (only.latent_mean(X) > 0).astype(int)
        return super().predict(X)

    def combine(self, log_p: Array) -> Array:
        """Of two classes as they are."""
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
