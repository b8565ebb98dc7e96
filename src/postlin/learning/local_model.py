"""The model of neighbours: every query is a small exact problem of its k nearest labelled rows.

Classes make binary problems that share the kernel, the neighbours and their covariances. With inducing
points the posterior of all rows, without the sites of the neighbours, is the prior of these problems.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.special import logsumexp
from sklearn.gaussian_process.kernels import Kernel

from postlin._typing import Array
from postlin.inference.local.gradient import LocalGradients, Score, gradients, log_scores
from postlin.inference.local.prior import SparsePrior
from postlin.inference.local.problems import LocalProblems, most_problems
from postlin.inference.local.solver import LocalPosteriors, solve
from postlin.inference.prior_mean import PriorMean, mean_at
from postlin.inference.sparse.posterior import SparsePosterior, State
from postlin.inference.sparse.row_sites import Method, RowMoments
from postlin.kernels import WhiteSplit, can_split, split_white
from postlin.kernels.stacks import Stack, full_stack
from postlin.learning.hyperparameters import Hyperparameters
from postlin.likelihoods import BinaryLikelihood, WithNoise
from postlin.likelihoods.on_host import anywhere
from postlin.linalg.arrays import HOST, Matrix, Place, as_matrix, on_host
from postlin.linalg.functions import functions
from postlin.linalg.stacks import all_finite, diagonals, entries, part_of
from postlin.rules.binary import Rule
from postlin.schedules import Parallel, Schedule
from postlin.streaming.places import Integers
from postlin.streaming.surroundings import Neighbourhoods, Queries

#: The most queries of a block, whose gradients are added up in the order of the blocks.
_BLOCK = 128
#: Entries of the coordinates of a block in the basis of the inducing points, 64 MiB.
_COORDINATES = 2**23


class LocalScore(NamedTuple):
    """A weighted sum of log probabilities of the queries' own labels, and what belongs to it.

    Scores of several blocks are added part by part.
    """

    value: float
    weight: float
    gradient: Array  # of the value, by the free log-parameters; empty if it was not asked for
    square: float  # the weighted sum of squares
    failed: int  # the number of local problems that have not converged

    @property
    def mean(self) -> float:
        """The mean log probability."""
        return self.value / self.weight

    @classmethod
    def total(cls, parts: "Sequence[LocalScore]") -> "LocalScore":
        """The sum of the parts, in their order."""
        value, weight, gradient, square, failed = zip(*parts, strict=True)
        added = np.sum(gradient, axis=0)
        return cls(sum(value), sum(weight), added, sum(square), sum(failed))


class LocalMarginals(NamedTuple):
    """Means and variances of the latent values of queries, (q, problems), and which converged."""

    mean: Array
    variance: Array
    converged: np.ndarray

    @classmethod
    def joined(cls, parts: "Sequence[LocalMarginals]") -> "LocalMarginals":
        """The marginals of several blocks, one after another."""
        return cls(*(np.concatenate(each) for each in zip(*parts, strict=True)))


@dataclass(frozen=True, eq=False)
class Latent:
    """A kernel without its white noise, and where the noise belongs."""

    smooth: Kernel
    noise: float  # on the diagonal of the covariance; zero if it is part of the likelihood
    likelihood: BinaryLikelihood
    split: WhiteSplit | None

    @classmethod
    def at(cls, at: Hyperparameters, fold_noise: bool) -> "Latent":
        """The latent values at these hyperparameters."""
        split = split_white(at.kernel) if can_split(at.kernel) else None
        if split is None:
            return cls(at.kernel, 0.0, at.likelihood, None)
        if fold_noise:
            return cls(split.smooth, 0.0, WithNoise(at.likelihood, split.noise), split)
        return cls(split.smooth, split.noise, at.likelihood, split)


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

    def applied(
        self, problems: LocalProblems, X: Matrix, y: Array, weight: Array, seen: np.ndarray
    ) -> tuple[LocalProblems, np.ndarray]:
        """The problems with the sparse posterior as prior, and for which of them there is one.

        Of all their rows X (n, P, d), queries included, those that were ``seen`` lose their sites. A
        problem whose sites cannot be removed keeps the kernel's prior.
        """
        n, size, d = X.shape
        flat = on_host(X).reshape(-1, d)
        prior_mean = self.method.mean_at(flat)
        R, lam, *_ = self.posterior.basis.coordinates(flat)
        V = self.prior.whitened(R)
        h, w = self.posterior.h, np.where(weight > 0, weight, 1.0).ravel()
        moments = RowMoments(V @ h + prior_mean, np.einsum("ij,ij->i", V, V), lam, np.minimum(w, 1.0))
        sites, _ = self.method.solve(y.ravel(), moments)
        felt = np.maximum(w, 1.0) * (seen & (weight > 0)).ravel() / (1.0 + lam * sites.tau)
        put = problems.place.put
        # the sites as Rᵀw feels them
        tau, nu = felt * sites.tau, felt * (sites.nu - sites.tau * prior_mean)
        beta, gamma = (put(part.reshape(n, size)[:, :-1]) for part in (tau, nu))
        R, V = (put(part.reshape(n, size, -1)) for part in (R, V))
        mean, covariance, found = self.prior.at(problems.covariance, R, V, beta, gamma)
        f = functions(mean)
        mean = mean + problems.mean
        found = found & f.all(f.isfinite(mean), axis=1) & all_finite(covariance)
        good = np.asarray(on_host(found))
        if not good.all():
            covariance = f.where(found[:, None, None], covariance, problems.covariance)
            mean = f.where(found[:, None], mean, problems.mean)
        return replace(problems, covariance=covariance, mean=mean), good


@dataclass(frozen=True, eq=False)
class LocalModel:
    """Binary problems of neighbourhoods, and a method: all but rows and hyperparameters.

    ``signs`` (problems, classes) holds the label ±1 of every class in every problem, 0 for a class that
    takes no part in it. ``normalised`` says that the problems are classes against the rest, whose
    probabilities are divided by their sum.
    """

    signs: Array
    normalised: bool
    rule: Rule
    tol: float
    max_iter: int
    fold_noise: bool = False
    prior_mean: PriorMean = 0.0
    place: Place = HOST
    parts: tuple[GlobalPart, ...] = ()  # for each problem, if there are inducing points

    schedule: ClassVar[Schedule] = Parallel()  # the sites of a problem move together

    def __getstate__(self) -> dict[str, object]:
        """A copy works in NumPy's memory."""
        return {name: value for name, value in vars(self).items() if name != "place"}

    def width(self, k: int) -> int:
        """The number of queries of a block."""
        width = min(_BLOCK, most_problems(k)) if self.place.is_host else most_problems(k, there=True)
        if self.parts:
            m = len(self.parts[0].posterior.h)
            width = min(width, max(1, _COORDINATES // ((k + 1) * m)))
        return width

    def marginals(self, at: Hyperparameters, near: Neighbourhoods, queries: Queries) -> LocalMarginals:
        """The marginals of the latent values of the queries in every problem."""
        hoods = _Hoods(self, at, near, queries)
        shape = len(queries), len(self.signs)
        result = LocalMarginals(np.empty(shape), np.empty(shape), np.empty(shape, dtype=bool))
        twin = hoods.twins()
        for t in range(len(self.signs)):
            own = np.flatnonzero(twin[:, t] == t)
            if len(own):
                _, found = (hoods if len(own) == len(queries) else hoods.where(own)).solved(t)
                result.mean[own, t], result.variance[own, t] = found.at_queries()
                result.converged[own, t] = found.converged
        return LocalMarginals(*(np.take_along_axis(part, twin, axis=1) for part in result))

    def score(
        self, at: Hyperparameters, near: Neighbourhoods, queries: Queries, *, gradient: bool
    ) -> LocalScore:
        """The log probabilities of the queries' own labels, summed, with the gradient on request."""
        hoods = _Hoods(self, at, near, queries)
        tasks = np.flatnonzero((self.signs[:, queries.code] != 0).any(axis=1))
        likelihood = anywhere(hoods.latent.likelihood, self.place)
        solved: dict[int, tuple[LocalProblems, LocalPosteriors]] = {}
        scores: dict[int, Score] = {}
        for t in tasks.tolist():
            solved[t] = hoods.solved(t)
            _, found = solved[t]
            label = self.place.give(self.asked(t, queries.code))
            scores[t] = log_scores(likelihood, label, found.mean[:, -1], found.variance[:, -1])
        log_p = np.stack([on_host(score.value) for score in scores.values()], axis=1)
        value, share = self._weighed(tasks, log_p, queries.code)
        failed = sum(int((~found.converged).sum()) for _, found in solved.values())
        weight = queries.weight
        slopes = np.zeros(0)
        if gradient:
            slopes = hoods.gradient(
                solved, scores, dict(zip(tasks.tolist(), (weight[:, None] * share).T, strict=True))
            )
        return LocalScore(
            float(weight @ value), float(weight.sum()), slopes, float(weight @ value**2), failed
        )

    def asked(self, t: int, code: np.ndarray) -> Array:
        """The label whose probability problem t is asked for, for queries of these classes."""
        sign = np.ones(len(code)) if self.normalised else self.signs[t, code]
        return np.where(sign == 0, 1.0, sign)

    def _weighed(self, tasks: np.ndarray, log_p: Array, code: np.ndarray) -> tuple[Array, Array]:
        """The log probability of each query's label, and its derivatives by those of the problems."""
        if self.normalised:
            share = np.exp(log_p - logsumexp(log_p, axis=1, keepdims=True))
            own = (tasks[None, :] == code[:, None]).astype(float)
            value = np.sum(own * log_p, axis=1) - logsumexp(log_p, axis=1)
            return value, own - share
        involved = (self.signs[tasks][:, code] != 0).T.astype(float)
        share = involved / involved.sum(axis=1, keepdims=True)
        return np.sum(share * log_p, axis=1), share


class _Hoods:
    """The neighbourhoods of a block of queries, with the covariances that their problems share."""

    def __init__(
        self, model: LocalModel, at: Hyperparameters, near: Neighbourhoods, queries: Queries
    ) -> None:
        self.model, self.at, self.near, self.queries = model, at, near, queries
        self.latent = Latent.at(at, model.fold_noise)
        there = [as_matrix(part, model.place) for part in (near.X, queries.X[:, None, :])]
        self.X: Matrix = functions(there[0]).concat(there, axis=1)
        self.stack: Stack = full_stack(self.latent.smooth, self.X)

    def labels(self, t: int) -> tuple[Array, Array]:
        """The labels of the neighbours in problem t, and their weights; both (q, k)."""
        sign = self.model.signs[t, self.near.code]
        return np.where(sign == 0, 1.0, sign), np.where(sign == 0, 0.0, self.near.weight)

    def twins(self) -> np.ndarray:
        """For each query and problem the first problem with the same labels, (q, problems).

        Classes that no neighbour has are alike: all neighbours belong to the rest.
        """
        n, C = len(self.queries), self.model.signs.shape[1]
        all_of = np.tile(np.arange(len(self.model.signs)), (n, 1))
        if self.model.parts or not self.model.normalised:
            return all_of
        absent = np.stack([~(self.near.code == c).any(axis=1) for c in range(C)], axis=1)
        return np.where(absent, np.argmax(absent, axis=1)[:, None], all_of)

    def where(self, chosen: np.ndarray) -> "_Hoods":
        """The neighbourhoods of some of the queries."""
        part, there = copy(self), self.model.place.give(chosen)
        number, X, code, weight = self.near
        X = part_of(X, chosen if isinstance(X, np.ndarray) else there)
        part.near = Neighbourhoods(number[chosen], X, code[chosen], weight[chosen])
        part.queries, part.X = self.queries.where(chosen), part_of(self.X, there)
        part.stack = self.stack._replace(K=part_of(self.stack.K, there))
        return part

    def prior_mean(self) -> Matrix:
        """The prior means of the rows, where the problems are."""
        place, prior_mean, (n, size, d) = self.model.place, self.model.prior_mean, self.X.shape
        if not callable(prior_mean):
            return place.zeros(n, size) + prior_mean
        rows = np.asarray(on_host(self.X)).reshape(-1, d)
        return place.put(mean_at(prior_mean, rows).reshape(n, size))

    def problems(self, t: int) -> tuple[LocalProblems, np.ndarray]:
        """Problem t of every query, and which of them have a prior."""
        model, latent, place = self.model, self.latent, self.model.place
        y, weight = self.labels(t)
        plain = bool((weight == 1.0).all())
        K = self.stack.K * 1.0
        diagonal = entries(K, 0, 0, K.shape[1])
        if plain:
            diagonal += latent.noise
        else:
            copies = np.concatenate([np.maximum(weight, 1.0), np.ones((len(y), 1))], axis=1)
            diagonal += place.give(latent.noise / copies)
        problems = LocalProblems(
            K,
            self.prior_mean(),
            place.give(y),
            latent.likelihood,
            model.rule,
            None if plain else place.give(weight),
            0.0 if plain else latent.noise,
        )
        if not model.parts:
            return problems, np.ones(len(y), dtype=bool)
        part, queries = model.parts[t], self.queries
        own = model.signs[t, queries.code] * (queries.number >= 0)
        all_y = np.concatenate([y, np.where(own == 0, 1.0, own)[:, None]], axis=1)
        strength = np.where(own == 0, 0.0, queries.weight)
        everything = np.concatenate([weight, strength[:, None]], axis=1)
        number = np.concatenate([self.near.number, queries.number[:, None]], axis=1)
        return part.applied(problems, self.X, all_y, everything, part.has_seen(number))

    def solved(self, t: int) -> tuple[LocalProblems, LocalPosteriors]:
        """Problem t of every query and its solution."""
        problems, found = self.problems(t)
        posteriors = solve(problems, tol=self.model.tol, max_iter=self.model.max_iter)
        return problems, replace(posteriors, converged=posteriors.converged & found)

    def gradient(
        self,
        solved: dict[int, tuple[LocalProblems, LocalPosteriors]],
        scores: dict[int, Score],
        share: dict[int, Array],
    ) -> Array:
        """The derivatives of Σ share · score by the free log-parameters; the global part is fixed."""
        likelihood, K_bar, by_noise = self.latent.likelihood, 0.0, 0.0
        by_parameters = np.zeros(len(likelihood.parameters))
        for t, (problems, found) in solved.items():
            score, part = scores[t], self.model.place.give(share[t])
            by = gradients(problems, found, part * score.by_mean, part * score.by_variance)
            K_bar = by.covariance + K_bar
            f = functions(part)
            direct = f.where(by.found, part, 0.0)[:, None] * score.by_parameters
            by_parameters += on_host(f.sum(by.parameters + direct, axis=0))
            by_noise += self._by_noise(t, problems, by)
        by_kernel, named = (
            self.stack.by_theta(K_bar),
            dict(zip(likelihood.parameters, by_parameters.tolist(), strict=True)),
        )
        if self.latent.split is not None:
            by_noise = named["variance"] if self.model.fold_noise else by_noise
            by_kernel = self.latent.split.join(by_kernel, by_noise)
        return np.array(by_kernel + self.at.by_likelihood(named), dtype=float)

    def _by_noise(self, t: int, problems: LocalProblems, by: LocalGradients) -> float:
        """The derivative by the white noise that is on the diagonals of problem t."""
        own = np.asarray(on_host(diagonals(by.covariance)))
        _, weight = self.labels(t)
        direct = float(np.sum(own[:, :-1] / np.maximum(weight, 1.0)) + own[:, -1].sum())
        return direct + (float(np.sum(on_host(by.noise))) if problems.noise > 0 else 0.0)
