"""The model of neighbours: every query is a small exact problem of its k nearest labelled rows.

Predictions also know the labels of rows beyond these, by sites that are found in small groups of them.

Classes make binary problems that share the kernel, the neighbours and their covariances. With inducing
points the posterior of all rows, without the sites of the neighbours, is the prior of these problems.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.special import logsumexp
from sklearn.gaussian_process.kernels import Kernel

from postlin._typing import Array
from postlin.inference.local.distant import given_distant, most_given, sites_in_groups
from postlin.inference.local.gradient import LocalGradients, Score, gradients, log_scores
from postlin.inference.local.problems import LocalProblems, most_problems
from postlin.inference.local.solver import LocalPosteriors, solve
from postlin.inference.prior_mean import PriorMean, is_zero, mean_at
from postlin.kernels import WhiteSplit, can_split, split_white
from postlin.kernels.stacks import Stack, full_stack
from postlin.learning.global_part import GlobalPart
from postlin.learning.hyperparameters import Hyperparameters
from postlin.learning.local_cases import Cases
from postlin.likelihoods import BinaryLikelihood, WithNoise
from postlin.linalg.arrays import HOST, Matrix, Place, as_matrix, on_host
from postlin.linalg.functions import functions
from postlin.linalg.stacks import diagonals, entries, part_of, write
from postlin.rules.binary import Rule
from postlin.rules.sites import Sites
from postlin.schedules import Parallel, Schedule
from postlin.streaming.surroundings import Neighbourhoods, Queries

#: The most queries of a block, whose gradients are added up in the order of the blocks.
_BLOCK = 128
#: Rows that a prediction looks at, for each of the k neighbours whose sites are exact, and at most.
_FARTHER, _FARTHEST = 4, 256
#: Entries of the coordinates of a block in the basis of the inducing points, 64 MiB.
_COORDINATES = 2**23


def reach(k: int) -> int:
    """The number of rows whose labels a prediction with k neighbours knows, these included."""
    return max(k, min(_FARTHER * k, _FARTHEST))


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

    def width(self, k: int, total: int) -> int:
        """The number of queries of a block that looks at ``total`` rows around each."""
        width = self.most(k, total)
        if self.place.is_host:
            width = min(_BLOCK, width)
        if self.parts:
            m = len(self.parts[0].posterior.h)
            width = min(width, max(1, _COORDINATES // ((total + 1) * m)))
        return width

    def most(self, k: int, total: int) -> int:
        """The number of problems that are in memory at a time."""
        return most_given(total, self.place) if total > k else most_problems(k, self.place)

    def marginals(
        self, at: Hyperparameters, near: Neighbourhoods, queries: Queries, k: int
    ) -> LocalMarginals:
        """The marginals of the latent values of the queries in every problem.

        The first k rows near a query are its neighbours, and the others are distant.
        """
        shape = len(queries), len(self.signs)
        block = _Block(self, at, near, queries, k, np.ones(shape, dtype=bool))
        return LocalMarginals(*(part.reshape(shape[::-1]).T for part in block.answers(block.solved())))

    def score(
        self, at: Hyperparameters, near: Neighbourhoods, queries: Queries, k: int, *, gradient: bool
    ) -> LocalScore:
        """The log probabilities of the queries' own labels, summed, with the gradient on request.

        There is a gradient without distant rows only.
        """
        code, weight = queries.code, queries.weight
        takes_part = self.signs[:, code].T != 0
        block = _Block(self, at, near, queries, k, takes_part)
        solved = list(block.solved())
        mean, variance, converged = block.answers(solved)
        asked = block.cases.asked
        label = np.ones(len(mean)) if self.normalised else self.signs[asked[1], code[asked[0]]]
        score = log_scores(block.latent.likelihood, label, mean, variance)
        log_p = np.zeros(takes_part.shape)
        log_p[asked] = score.value
        value, share = self._weighed(log_p, takes_part, code)
        slopes = np.zeros(0)
        if gradient:
            slopes = block.gradient(solved, score, (weight[:, None] * share)[asked])
        failed = int((~converged).sum())
        return LocalScore(
            float(weight @ value), float(weight.sum()), slopes, float(weight @ value**2), failed
        )

    def _weighed(self, log_p: Array, takes_part: np.ndarray, code: np.ndarray) -> tuple[Array, Array]:
        """The log probability of each query's label, and its derivatives by those of the problems."""
        if self.normalised:
            total = logsumexp(log_p, axis=1)
            share = -np.exp(log_p - total[:, None])
            rows = np.arange(len(code))
            share[rows, code] += 1.0
            return log_p[rows, code] - total, share
        share = takes_part / takes_part.sum(axis=1, keepdims=True)
        return np.sum(share * log_p, axis=1), share


class _Block:
    """The neighbourhoods of a block of queries, and the different problems among those wanted.

    What the problems share is computed once: covariances, and coordinates in a global part.
    """

    def __init__(
        self,
        model: LocalModel,
        at: Hyperparameters,
        near: Neighbourhoods,
        queries: Queries,
        k: int,
        wanted: np.ndarray,
    ) -> None:
        self.model, self.at, self.near, self.queries, self.k = model, at, near, queries, k
        self.latent = Latent.at(at, model.fold_noise)
        there = [as_matrix(part, model.place) for part in (near.X, queries.X[:, None, :])]
        X: Matrix = functions(there[0]).concat(there, axis=1)
        self.stack: Stack = full_stack(self.latent.smooth, X)
        self._prior_mean = _prior_mean(model.prior_mean, X)
        self._coordinates = model.parts[0].coordinates(X) if model.parts else None
        if model.parts or len(model.signs) == 1:
            self.cases = Cases.all_of(wanted)
        else:
            symmetric = self.latent.likelihood.symmetric and is_zero(model.prior_mean)
            self.cases = Cases.distinct(
                wanted, model.signs, near.code, near.weight, symmetric=symmetric
            )

    def solved(self) -> "Iterator[_Solved]":
        """The cases, piece by piece, with their solutions."""
        model = self.model
        total, tol, max_iter = self.near.code.shape[1], model.tol, model.max_iter
        most = model.most(self.k, total)
        for piece in self.cases.runs() if model.parts else self.cases.pieces(most):
            problems, sites, found = self._problems(piece)
            if total > self.k:
                if sites is None:
                    sites = sites_in_groups(problems, self.k, tol=tol, max_iter=max_iter)
                problems = given_distant(problems, self.k, sites)
            posteriors = solve(problems, tol=tol, max_iter=max_iter)
            found &= posteriors.converged
            yield _Solved(piece, problems, replace(posteriors, converged=found))

    def answers(self, solved: "Iterable[_Solved]") -> LocalMarginals:
        """The marginals at the queries of all that is asked for, one after another."""
        case, sign = self.cases.case, self.cases.sign
        found = [(each.posteriors.at_queries(), each.posteriors.converged) for each in solved]
        marginals, converged = (np.concatenate(each, axis=-1) for each in zip(*found, strict=True))
        return LocalMarginals(sign * marginals[0, case], marginals[1, case], converged[case])

    def gradient(self, solved: "Sequence[_Solved]", score: Score, share: Array) -> Array:
        """The derivatives of Σ share · score by the free log-parameters; the global part is fixed."""
        place, likelihood, cases = self.model.place, self.latent.likelihood, self.cases
        n, case = len(cases.query), cases.case
        by_mean = np.bincount(case, cases.sign * share * score.by_mean, n)
        by_variance = np.bincount(case, share * score.by_variance, n)
        K_bar, found = self.stack.K * 0.0, np.empty(n, dtype=bool)
        by_parameters, by_noise = np.zeros(len(likelihood.parameters)), 0.0
        for piece, problems, posteriors in solved:
            slopes = place.give(by_mean[piece]), place.give(by_variance[piece])
            by = gradients(problems, posteriors, *slopes)
            for run in cases.runs(piece):
                rows = place.give(cases.query[run])
                here = by.covariance[run.start - piece.start : run.stop - piece.start, :, :]
                write(K_bar, rows, part_of(K_bar, rows) + here)
            found[piece] = on_host(by.found)
            by_parameters += on_host(functions(by.parameters).sum(by.parameters, axis=0))
            by_noise += _by_noise(problems, by)
        by_parameters += np.where(found[case], share, 0.0) @ score.by_parameters
        by_kernel, named = (
            self.stack.by_theta(K_bar),
            dict(zip(likelihood.parameters, by_parameters.tolist(), strict=True)),
        )
        if self.latent.split is not None:
            by_noise = named["variance"] if self.model.fold_noise else by_noise
            by_kernel = self.latent.split.join(by_kernel, by_noise)
        return np.array(by_kernel + self.at.by_likelihood(named), dtype=float)

    def _problems(self, piece: slice) -> tuple[LocalProblems, Sites | None, np.ndarray]:
        """Some of the cases, sites of their rows if these are known, and which cases have a prior."""
        model, latent, place, near = self.model, self.latent, self.model.place, self.near
        query, problem = self.cases.query[piece], self.cases.problem[piece]
        sign = model.signs[problem[:, None], near.code[query]]
        y, weight = np.where(sign == 0, 1.0, sign), np.where(sign == 0, 0.0, near.weight[query])
        plain = bool((weight == 1.0).all())
        K = part_of(self.stack.K, place.give(query))
        diagonal = entries(K, 0, 0, K.shape[1])
        if plain:
            diagonal += latent.noise
        else:
            copies = np.concatenate([np.maximum(weight, 1.0), np.ones((len(y), 1))], axis=1)
            diagonal += place.give(latent.noise / copies)
        problems = LocalProblems(
            K,
            place.put(self._prior_mean[query]),
            place.give(y),
            latent.likelihood,
            model.rule,
            None if plain else place.give(weight),
            0.0 if plain else latent.noise,
        )
        if self._coordinates is None:
            return problems, None, np.ones(len(y), dtype=bool)
        part, queries = model.parts[int(problem[0])], self.queries.where(query)
        own = model.signs[problem, queries.code] * (queries.number >= 0)
        all_y = np.concatenate([y, np.where(own == 0, 1.0, own)[:, None]], axis=1)
        strength = np.where(own == 0, 0.0, queries.weight)
        everything = np.concatenate([weight, strength[:, None]], axis=1)
        number = np.concatenate([near.number[query], queries.number[:, None]], axis=1)
        R, lam = (values[query] for values in self._coordinates)
        return part.applied(problems, R, lam, all_y, everything, part.has_seen(number))


def _prior_mean(prior_mean: PriorMean, X: Matrix) -> Array:
    """The prior means (n, P) of rows X (n, P, d)."""
    n, size, d = X.shape
    if not callable(prior_mean):
        return np.full((n, size), prior_mean)
    return mean_at(prior_mean, np.asarray(on_host(X)).reshape(-1, d)).reshape(n, size)


class _Solved(NamedTuple):
    """Some of the cases of a block, and their solutions."""

    piece: slice
    problems: LocalProblems
    posteriors: LocalPosteriors


def _by_noise(problems: LocalProblems, by: LocalGradients) -> float:
    """The derivative by the white noise that is on the diagonals of problems."""
    own = np.asarray(on_host(diagonals(by.covariance)))
    if problems.weights is None:
        return float(own.sum())
    direct = float(np.sum(own[:, :-1] / np.maximum(on_host(problems.weights), 1.0)) + own[:, -1].sum())
    return direct + (float(np.sum(on_host(by.noise))) if problems.noise > 0 else 0.0)
