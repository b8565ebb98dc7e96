"""The fit of two classes with neighbours, and its predictions.

The problems of many classes share the rows, the search for neighbours and the hyperparameters: one
``Neighbourhood`` makes the predictions of all of them.
"""

import hashlib
import time
import warnings
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NoReturn

import numpy as np

from postlin._typing import Array, Marginals, cached_property, override
from postlin.estimator.fits import BinaryFit
from postlin.exceptions import ConvergenceWarning, ModelFileError
from postlin.inference.result import History, Record
from postlin.kernels.stacks import metric
from postlin.learning.global_fit import GlobalFit, with_parts
from postlin.learning.hyperparameters import Hyperparameters
from postlin.learning.local_model import Latent, LocalMarginals, LocalModel
from postlin.learning.local_search import logger
from postlin.learning.local_training import Learned
from postlin.learning.progress import shown_log
from postlin.likelihoods import BinaryLikelihood
from postlin.linalg.arrays import HOST, Place
from postlin.streaming.neighbours import Neighbours
from postlin.streaming.sources import MappedSlice
from postlin.streaming.surroundings import ArraySurroundings, Neighbourhoods, Queries, Surroundings

#: Queries whose neighbours are known by number at a time: 64 MiB for 256 rows around each.
_QUERIES = 16_384
#: Seconds between two lines of progress.
_EVERY = 10.0


@dataclass(frozen=True, eq=False)
class MarginalLook:
    """The marginals of a block of queries, which can be sent to where the rows are."""

    model: LocalModel
    at: Hyperparameters
    k: int

    def __call__(self, near: Neighbourhoods, queries: Queries) -> LocalMarginals:
        """The marginals of the block."""
        return self.model.marginals(self.at, near, queries, self.k)


@dataclass(frozen=True, eq=False)
class LocalRows:
    """The rows of a fit, which a file of the model holds, or names if they are memory-mapped."""

    X: np.ndarray | MappedSlice
    code: np.ndarray
    weight: Array | None
    mark: str | None = None  # of the rows in a file that is named

    def surroundings(
        self, lengths: Array, k: int, seed: int, n_jobs: int | None, place: Place
    ) -> ArraySurroundings:
        """The rows with a search for neighbours."""
        X = self._opened()
        search = Neighbours.of(X, lengths, k=k, seed=seed, n_jobs=n_jobs, place=place)
        return ArraySurroundings(X, self.code, self.weight, search)

    def _opened(self) -> np.ndarray:
        """The rows, which must be those of the fit."""
        if not isinstance(self.X, MappedSlice):
            return self.X
        X = self.X.mapped()
        if _mark(X) != self.mark:
            raise ModelFileError(
                f"the rows of the model, in {self.X.path!r}, have changed since it was saved: restore "
                "the file, or fit again."
            )
        return X

    def __getstate__(self) -> dict[str, object]:
        if not isinstance(self.X, np.memmap):
            return dict(vars(self))
        return {**vars(self), "X": MappedSlice.of(self.X), "mark": _mark(self.X)}


def _mark(X: np.ndarray) -> str:
    """What tells a thousand of the rows from others."""
    return _digest(X[:: len(X) // 1000 + 1]).hex()


@dataclass(eq=False)
class Neighbourhood:
    """What all problems of a fit share: rows, hyperparameters, a global part, and k neighbours.

    A copy from a file or from another process prepares the search again when it is first needed.
    """

    rows: LocalRows | None  # None if they are on a cluster
    at: Hyperparameters
    base: LocalModel  # without a global part
    whole: GlobalFit | None
    k: int
    total: int  # the rows whose labels a prediction knows, the k neighbours included
    seed: int
    n_jobs: int | None
    verbose: int
    place: Place = HOST
    fits: "list[LocalFit]" = field(default_factory=list, repr=False)  # of all problems
    _around: Surroundings | None = None
    _last: tuple[bytes, LocalMarginals] | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, object]:
        """A copy has neither matrices nor a search, and works in NumPy's memory."""
        kept = {name: value for name, value in vars(self).items() if name not in ("model", "place")}
        return kept | {"fits": [], "_around": None, "_last": None}

    @property
    def around(self) -> Surroundings:
        """The rows with the search for neighbours in the metric of the kernel."""
        if self._around is None:
            if self.rows is None:
                raise AttributeError(
                    "the rows of this model are on a Dask cluster and no part of a copy of it: predict "
                    "where it was fitted, or fit again."
                )
            lengths = metric(self.at.kernel, self.rows.X.shape[1])
            k, seed, n_jobs = self.k, self.seed, self.n_jobs
            self._around = self.rows.surroundings(lengths, k, seed, n_jobs, self.place)
        return self._around

    @cached_property
    def model(self) -> LocalModel:
        """The model with its global part."""
        base = replace(self.base, place=self.place)
        return base if self.whole is None else with_parts(base, self.at, self.whole, self.around.n)

    @property
    def likelihood(self) -> BinaryLikelihood:
        """p(y|f) for the predicted latent values."""
        return Latent.at(self.at, self.base.fold_noise).likelihood

    def marginals(self, X: np.ndarray) -> LocalMarginals:
        """The marginals of the latent values at new rows, in all problems; the last are kept."""
        if self._last is not None and self._last[0] == _digest(X):
            return self._last[1]
        found = self.of(Queries.new(X))
        self.remember(X, found)
        return found

    def remember(self, X: np.ndarray, found: LocalMarginals) -> None:
        """Keep the marginals of new rows, of which all problems make their predictions."""
        self._last = _digest(X), found

    def of(self, queries: Queries) -> LocalMarginals:
        """The marginals of queries, chunk by chunk; a warning counts those that did not converge."""
        look, total, width = self._look()
        parts: list[LocalMarginals] = []
        began = told = time.perf_counter()
        with shown_log(self.verbose):
            for first in range(0, len(queries), _QUERIES):
                some = queries.where(slice(first, first + _QUERIES))
                parts += self.around.each(look, some, total, width)
                now, done = time.perf_counter(), min(first + _QUERIES, len(queries))
                if now - told > _EVERY and done < len(queries):
                    told, left = now, (now - began) * (len(queries) - done) / done
                    logger.info(
                        "%s of %s rows, about %.0f s left", f"{done:,}", f"{len(queries):,}", left
                    )
        return _told(LocalMarginals.joined(parts))

    def _look(self) -> tuple[MarginalLook, int, int]:
        """A look, the number of rows around a query that it takes, and that of queries of a block."""
        width = self.model.width(self.k, self.total)
        return MarginalLook(self.model, self.at, self.k), self.total, width

    @property
    def on_cluster(self) -> bool:
        """Whether workers of a Dask cluster hold the rows."""
        return self.rows is None

    def lazily(self, strategy: Any, X: Any) -> Any:
        """A Dask array of the class probabilities at the rows of one, computed where the rows are."""
        around: Any = self.around  # it is a DaskSurroundings, and Dask is an extra
        look, total, width = self._look()
        return around.lazily(look, _Probabilities(strategy), X, total, width, strategy.n_classes)

    def left_out(self) -> LocalMarginals:
        """The marginals of the rows themselves, each from its neighbours without it."""
        return self.of(self.around.drawn(self.around.n, 0))


def _digest(X: np.ndarray) -> bytes:
    """What tells rows from others, even where an array has been overwritten since."""
    found = hashlib.blake2b(repr((X.shape, X.dtype)).encode())
    found.update(np.ascontiguousarray(X).data)
    return found.digest()


def _told(found: LocalMarginals) -> LocalMarginals:
    """The marginals; a warning counts those that did not converge."""
    failed = int((~found.converged).any(axis=1).sum())
    if failed:
        warnings.warn(
            ConvergenceWarning(
                f"inference among the neighbours of {failed:,} of {len(found.converged):,} rows has "
                "not converged, and their predictions are approximate: add white noise to the kernel, "
                "or raise max_iter_predict."
            ),
            stacklevel=6,
        )
    return found


@dataclass(frozen=True, eq=False)
class _Probabilities:
    """The end of a prediction on a cluster: from the marginals of rows to their probabilities."""

    strategy: Any  # of fits that share a copy of the neighbourhood, without rows

    def __call__(self, X: Array, found: list[LocalMarginals]) -> Array:
        self.strategy.estimators_[0].near.remember(X, _told(LocalMarginals.joined(found)))
        predicted: Array = self.strategy.predict_proba(X)
        return predicted


class LocalFit(BinaryFit):
    """One problem of a fit with neighbours. Its criterion is an estimate of the leave-one-out score."""

    method: ClassVar[str] = "local"
    criterion: ClassVar[str] = "estimated leave-one-out log score"

    def __init__(
        self, name: str, number: int, near: Neighbourhood, learned: Learned, spread: Array
    ) -> None:
        """``number`` is that of the problem; ``spread`` has the deviations of the features."""
        score = learned.variant.score
        n = near.around.n
        self.name, self.number, self.near, self.spread = name, number, near, spread
        self.rows, self.n_rows = np.arange(n) if near.rows is not None else range(n), n
        self.hyperparameters = near.at
        self.log_marginal_likelihood_value_ = score.mean * n
        self.k, self.recall = near.k, learned.recall
        self.evidence_path_ = learned.path
        self.remarks = list(learned.remarks)
        self.constant = learned.constant
        self.interrupted = learned.interrupted
        none = np.zeros(0, dtype=bool)
        self.record = Record(score.failed == 0, near.base.tol, 0, 0, History(), none, score.failed)
        self._kept = (np.zeros(0), np.zeros(0))
        self._approximation = None
        self._loo = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "rows": None, "_loo": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.near.fits.append(self)
        self.rows = np.arange(self.n_rows) if self.near.rows is not None else range(self.n_rows)

    @property
    def model(self) -> LocalModel:  # type: ignore[override]
        """The method of the local problems."""
        return self.near.base

    @override
    def warnings(self) -> list[Warning]:
        found: list[Warning] = [ConvergenceWarning(text) for text in self.remarks]
        if self.record.unsolved:
            found.append(
                ConvergenceWarning(
                    f"{self.record.unsolved} of the local problems of held rows have not converged: "
                    "add white noise to the kernel, or raise max_iter_predict."
                )
            )
        return found

    @property
    @override
    def size(self) -> int:
        return self.k + 1

    @property
    @override
    def effort(self) -> str:
        return f"{self.k} neighbours"

    @property
    @override
    def kind(self) -> str:
        k, total, whole = self.k, min(self.near.total, self.n_rows), self.near.whole
        near = f"{k} neighbours" if k == total else f"{k} neighbours, labels of {total} rows"
        return near if whole is None else f"{near} and {len(whole.Z)} inducing points"

    @property
    @override
    def deviations(self) -> Array:
        return self.spread

    @property
    @override
    def inducing_points_(self) -> Array:
        if self.near.whole is None:
            raise AttributeError("this fit has neighbours alone, and no inducing points.")
        return self.near.whole.Z

    @property
    @override
    def X_train_(self) -> np.ndarray:
        around = self.near.around
        if not isinstance(around, ArraySurroundings):
            raise AttributeError("the rows are on a cluster, so that there is no X_train_.")
        return around.X

    @property
    @override
    def y_train_(self) -> np.ndarray:
        if self.near.rows is None:
            raise AttributeError("the rows are on a cluster, so that there is no y_train_.")
        return np.asarray(self.model.signs[self.number, self.near.rows.code])

    @property
    @override
    def latent_likelihood(self) -> BinaryLikelihood:
        return self.near.likelihood

    @override
    def latent_mean_and_variance(self, X: np.ndarray) -> Marginals:
        found = self.near.marginals(X)
        return Marginals(found.mean[:, self.number], found.variance[:, self.number])

    @override
    def _left_out(self) -> Array:
        found = self.near.left_out()
        for other in self.near.fits:  # which need not search again
            k = other.number
            other._loo = other._log_probabilities(Marginals(found.mean[:, k], found.variance[:, k]))
        assert self._loo is not None
        return self._loo

    @override
    def cavity_log_probabilities(self) -> Array:
        return self.loo_log_probabilities()

    @override
    def log_marginal_likelihood(
        self, theta: Array | None = None, eval_gradient: bool = False, clone_kernel: bool = True
    ) -> float | tuple[float, Array]:
        if theta is not None or eval_gradient:
            self._refuse("the evidence of all rows")
        return self.log_marginal_likelihood_value_

    @override
    def sample(self, X: np.ndarray, n_samples: int, rng: np.random.RandomState) -> Array:
        self._refuse("a joint posterior of several rows, from which to draw,")

    @override
    def site_strengths(self) -> tuple[Array, Array]:
        self._refuse("sites of the rows")

    @property
    @override
    def approximation_(self) -> Any:
        self._refuse("one approximation of the posterior")

    def _refuse(self, what: str) -> NoReturn:
        raise AttributeError(
            f"{what} is not known with neighbours, which make a problem of their own for every row: "
            "use exact inference, or inducing points alone."
        )
