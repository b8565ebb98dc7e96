"""Strategies for many classes: binary problems whose answers are combined, or all classes jointly."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import combinations
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.special import logsumexp

from postlin._typing import Array, override
from postlin.estimator.fits import BinaryFit, Fit


class Task(NamedTuple):
    """One problem: the rows of the data that it uses, and its own labels for them."""

    name: str
    rows: np.ndarray
    labels: np.ndarray  # −1 and +1; indices of classes if all classes are fitted jointly


class Strategy(ABC):
    """A way to fit many classes as one or several problems, and to combine the predictions."""

    name: ClassVar[str]

    def __init__(self, n_classes: int, estimators: Sequence[Fit]) -> None:
        self.n_classes = n_classes
        self.estimators_ = list(estimators)

    @staticmethod
    @abstractmethod
    def tasks(classes: Array, codes: np.ndarray) -> list[Task]:
        """The problems, given the labels and for each row the index of its label."""

    def combine(self, log_p: Array) -> Array:
        """Class probabilities (n, C) from log probabilities (n, problems, labels of a problem).

        Here they are those of the first problem, for strategies that have only one.
        """
        return np.exp(log_p[:, 0])

    def predict_proba(self, X: np.ndarray) -> Array:
        """Class probabilities at the rows of X."""
        return self.combine(np.stack([fit.log_probabilities(X) for fit in self.estimators_], axis=1))

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Indices of the most probable classes."""
        return np.asarray(np.argmax(self.predict_proba(X), axis=1))

    def loo_predict_proba(self, X: np.ndarray) -> Array:
        """Leave-one-out class probabilities of the training rows X.

        A problem that does not use a row predicts it as it would predict a new row.
        """
        each = []
        for fit in self.estimators_:
            known = fit.loo_log_probabilities()
            log_p = np.empty((len(X), known.shape[1]))
            log_p[fit.rows] = known
            unseen = np.setdiff1d(np.arange(len(X)), fit.rows)
            if len(unseen):
                log_p[unseen] = fit.log_probabilities(X[unseen])
            each.append(log_p)
        return self.combine(np.stack(each, axis=1))


class OneVsRest(Strategy):
    """Each class against all others; the probabilities of the classes are normalised."""

    name: ClassVar[str] = "one_vs_rest"

    @staticmethod
    @override
    def tasks(classes: Array, codes: np.ndarray) -> list[Task]:
        rows = np.arange(len(codes))
        signs = (np.where(codes == c, 1.0, -1.0) for c in range(len(classes)))
        return [Task(f"{c} against the rest", rows, y) for c, y in zip(classes, signs, strict=True)]

    @override
    def combine(self, log_p: Array) -> Array:
        # logarithms are normalised because all probabilities of a row may underflow
        log_plus = log_p[:, :, 1]
        return np.asarray(np.exp(log_plus - logsumexp(log_plus, axis=1, keepdims=True)))


class OneVsOne(Strategy):
    """Each class against each other; the probabilities come from pairwise coupling.

    Two classes make one pair, whose probabilities are used as they are.
    """

    name: ClassVar[str] = "one_vs_one"

    @staticmethod
    @override
    def tasks(classes: Array, codes: np.ndarray) -> list[Task]:
        tasks = []
        for i, j in combinations(range(len(classes)), 2):
            rows = np.flatnonzero((codes == i) | (codes == j))
            signs = np.where(codes[rows] == j, 1.0, -1.0)
            tasks.append(Task(f"{classes[j]} against {classes[i]}", rows, signs))
        return tasks

    @override
    def predict(self, X: np.ndarray) -> np.ndarray:
        only = self.estimators_[0]
        if self.n_classes == 2 and isinstance(only, BinaryFit) and only.sign_decides:
            return (only.latent_mean(X) > 0).astype(int)  # which takes no variances
        return super().predict(X)

    @override
    def combine(self, log_p: Array) -> Array:
        return super().combine(log_p) if self.n_classes == 2 else couple(np.exp(log_p), self.n_classes)


class Joint(Strategy):
    """One problem with all classes."""

    name: ClassVar[str] = "joint"

    @staticmethod
    @override
    def tasks(classes: Array, codes: np.ndarray) -> list[Task]:
        return [Task("all classes", np.arange(len(codes)), codes)]


def couple(pairs: Array, n_classes: int) -> Array:
    """Class probabilities p that are closest to the pairwise ones r (Wu, Lin and Weng, 2004).

    They minimise Σᵢ Σⱼ (rⱼᵢ pᵢ − rᵢⱼ pⱼ)² under Σ p = 1; ``pairs`` is an array (n, pairs, 2) that
    holds rᵢⱼ and rⱼᵢ for i < j.
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
    # a pseudo-inverse, because pairs whose probabilities are all 0 or 1 leave p partly undetermined
    p = np.maximum(np.linalg.pinv(system, hermitian=True)[:, :C, C], 0.0)
    return np.asarray(p / p.sum(axis=1, keepdims=True))


#: The strategies by name, as ``multi_class="one_vs_rest"``.
REGISTRY: dict[str, type[Strategy]] = {s.name: s for s in (OneVsRest, OneVsOne, Joint)}
