"""Learning from many rows by exact inference, with less than all of them first.

The parts are groups of rows that lie near each other, as if the latent values of different groups were
independent: a quarter of the rows takes a sixty-fourth of the time. What is near a row tells most about
it, so that the sum of the log evidences has its optimum, its curvature and its sites near those of all
rows. (A random quarter prefers longer length scales: on the first 1,000 rows of electricity 5.4, four
groups 2.0, all rows 0.45.)

Rows that occur more than once are one row with a weight. A row of weight w counts as w rows, each with
white noise of its own, so that the evidence is the same, by matrices of the distinct rows alone. In the
end inference is made for all rows, since every row has a latent value of its own.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple

import numpy as np

from postlin._typing import Array
from postlin.learning.hyperparameters import Hyperparameters
from postlin.learning.models import LARGE, Model, Path, Start
from postlin.learning.progress import watched
from postlin.learning.search import Callback, logger
from postlin.learning.starts import Guide
from postlin.learning.training import Training, announce, soft_bounds, train
from postlin.linalg.minimise import Optimizer, Worth, minimise
from postlin.linalg.threads import give_freed_memory_back

#: The fewest rows of a part, and the number of parts of the second search.
_LEAST, _FEW = 250, 4
#: When a search in parts ends if another follows, or none, and the tolerance of its inference.
_ROUGHLY, _WELL, _TOL = Worth(least=0.3, slope=1.0), Worth(least=0.02, slope=0.1), 1e-6
#: The largest change of a log-parameter in the first step of a search that others have prepared.
_REACH = 1.0
#: A forecast that is closer to the start than this is none.
_SAME = 1e-6


@dataclass(frozen=True, eq=False)
class Parts(Generic[Start]):
    """Models of all rows, and for each of them groups of rows with models of their own."""

    whole: Sequence[Model[Start]]
    groups: list[list[tuple[np.ndarray, Model[Start]]]]

    @classmethod
    def of(cls, models: Sequence[Model[Start]], count: int) -> "Parts[Start] | None":
        """So many parts of each model; None if one of them has no parts."""
        groups = [model.parted(count, _TOL) for model in models]
        found = [group for group in groups if group is not None]
        return cls(models, found) if len(found) == len(models) else None

    @property
    def models(self) -> list[Model[Start]]:
        """The models of all groups."""
        return [part for group in self.groups for _, part in group]

    def split(self, starts: Sequence[Start | None]) -> list[Start | None]:
        """What inference in every group can start from, from what there is for all rows."""
        return [
            None if start is None else model.split(start, rows)
            for model, start, group in zip(self.whole, starts, self.groups, strict=True)
            for rows, _ in group
        ]

    def joined(self, starts: Iterable[Start]) -> list[Start]:
        """What inference in all rows can start from, from what there is for every group."""
        each = iter(starts)
        return [
            model.joined([(rows, next(each)) for rows, _ in group])
            for model, group in zip(self.whole, self.groups, strict=True)
        ]


class PartsForecast(Generic[Start]):
    """Where the optimum is, as far as parts of the rows and one slope on all rows can tell.

    The evidence of all rows is taken for that of the parts and a linear term, with which the slopes
    agree.
    """

    def __init__(self, parts: Parts[Start], coarse: Training[Start], ceiling: float) -> None:
        assert coarse.search is not None
        self._parts, self._search = parts, coarse.search
        self._bounds, self._curvature = coarse.at.bounds, coarse.curvature
        self._soft = soft_bounds(coarse.at, ceiling)

    def __call__(
        self, theta: Array, slope: Array, paths: Sequence[Path[Start]]
    ) -> tuple[Array | None, Array | None]:
        """Where that optimum is, and the curvature there; ``paths`` get what to start from there."""
        search, nothing = self._search, (None, self._curvature)
        here = search(theta)[1]
        if not (slope.any() and here.any()):  # there is no evidence
            return nothing
        missing = slope - here

        def objective(t: Array) -> tuple[float, Array]:
            value, by = search(t)
            return value + float(missing @ (t - theta)), by + missing

        before, curvature = self._found(theta), self._curvature
        how: dict[str, Any] = {"curvature": curvature, "reach": _REACH, "soft": self._soft}
        end = minimise(objective, theta, self._bounds, _WELL, **how)
        there = self._found(end.x)
        search.release()
        give_freed_memory_back()
        if end.message is not None or np.abs(end.x - theta).max() < _SAME:
            return nothing
        for path, old, new in zip(paths, before, there, strict=True):
            path.follow(end.x, old, new)
        return end.x, end.curvature

    def _found(self, theta: Array) -> list[Start]:
        """What inference in all rows can start from, from what there is in the groups near theta."""
        return self._parts.joined(path.nearest(theta)[0][1] for path in self._search.paths)


class _Lead(NamedTuple, Generic[Start]):
    """What searches in parts of the rows have found."""

    training: Training[Start]
    parts: Parts[Start]
    starts: Sequence[Start | None]  # for inference in all rows


def train_in_parts(
    models: Sequence[Model[Start]],
    at: Hyperparameters,
    optimizer: Optimizer | str | None,
    *,
    restarts: int = 0,
    starts: Sequence[Start | None],
    callback: Callback | None = None,
    guide: Guide | None = None,
    look_around: bool = True,
    curvature: Array | None = None,
    **options: Any,
) -> Training[Start]:
    """Maximise the evidence, as ``train`` does, from a thousand rows on with parts of the rows first.

    The searches in parts make all restarts and look around, and what they find to be nearly as good as
    the best begins a search in all rows too. Where they learn nothing, all rows are searched as if
    there were no parts. The callback is called in the search in all rows.
    """
    search: Callable[..., Training[Start]] = partial(
        train, models, guide=guide, callback=callback, **options
    )
    lead = None
    if optimizer == "bfgs" and look_around and curvature is None and len(at.theta):
        announce(models, len(at.theta))
        lead = _led(models, at, optimizer, starts, guide, {"restarts": restarts, **options})
        watched().say("" if lead is None else "in all rows")
    if lead is None:
        how: dict[str, Any] = {"restarts": restarts, "look_around": look_around}
        return search(at, optimizer, starts=starts, curvature=curvature, **how)
    coarse, parts, starts = lead
    logger.info("continuing on all rows from %s", coarse.at.kernel)
    if coarse.interrupted:
        return search(coarse.at, None, starts=starts)._replace(interrupted=True)
    forecast = PartsForecast(parts, coarse, options.get("ceiling", np.inf))
    how = {"look_around": False, "curvature": coarse.curvature, "rivals": coarse.rivals}
    at = coarse.at
    del coarse, lead  # and its matrices
    give_freed_memory_back()  # which larger ones cannot use
    return search(at, optimizer, starts=starts, forecast=forecast, **how)


def _led(
    models: Sequence[Model[Start]],
    at: Hyperparameters,
    optimizer: str,
    starts: Sequence[Start | None],
    guide: Guide | None,
    options: dict[str, Any],
) -> _Lead[Start] | None:
    """Search with many groups of rows, and from there with few; None where that leads nowhere."""
    lead, name = None, options.get("name", "")
    counts = _counts(min(model.n_rows for model in models))
    for count in counts:
        parts = Parts.of(models, count)
        if parts is None:
            return None
        logger.info("searching with %d groups of rows first", count)
        watched().say(f"first in {count} groups of rows")
        options = options | {"name": f"{name}, {count} groups" if name else f"{count} groups"}
        how: dict[str, Any] = {"worth": _WELL if count == counts[-1] else _ROUGHLY, "guide": guide}
        coarse = train(parts.models, at, optimizer, starts=parts.split(starts), **how, **options)
        assert coarse.search is not None
        if not coarse.interrupted and not (
            all(path.has_solved for path in coarse.search.paths)
            and (guide is None or guide.has_learned(sum(found.log_evidence for found in coarse.best)))
        ):
            return None
        at, starts = coarse.at, parts.joined(found.start for found in coarse.best)
        coarse.search.release()
        lead = _Lead(coarse._replace(best=[]), parts, starts)
        if coarse.interrupted:
            break
        options = options | {"restarts": 0, "look_around": False, "curvature": coarse.curvature}
        options["rivals"] = coarse.rivals
    return lead


def _counts(n: int) -> list[int]:
    """The numbers of groups, in order: of some hundred rows, and then of a quarter of the rows."""
    if n < LARGE:
        return []
    most = int(2 ** int(np.log2(n / _LEAST)))
    return [most, _FEW] if most > _FEW else [most]


#: With fewer rows there is nothing to save, nor where more than this part of the rows is distinct.
_FEWEST, _MOST = 100, 0.9


@dataclass(frozen=True, eq=False)
class Distinct:
    """The distinct ones among labelled rows: where each occurs first, and how often."""

    firsts: np.ndarray
    number: np.ndarray  # for every row, the number of its distinct row
    count: np.ndarray

    @classmethod
    def of(cls, X: np.ndarray, y: np.ndarray) -> "Distinct | None":
        """The distinct rows; None if they are nearly as many as there are rows."""
        if len(y) < _FEWEST or np.ndim(X) != 2 or X.dtype.kind not in "fiu":
            return None
        both = np.column_stack([X, y])
        _, firsts, number, count = np.unique(
            both, axis=0, return_index=True, return_inverse=True, return_counts=True
        )
        return cls(firsts, number.ravel(), count) if len(firsts) <= _MOST * len(y) else None


def train_distinct(
    models: Sequence[Model[Start]],
    at: Hyperparameters,
    optimizer: Optimizer | str | None,
    *,
    starts: Sequence[Start | None],
    **options: Any,
) -> Training[Start]:
    """Maximise the evidence, as ``train_in_parts`` does, with a weight in place of each repetition."""
    found = [Distinct.of(model.X, model.y) if model.can_merge(at.kernel) else None for model in models]
    distinct = [each for each in found if each is not None]
    if optimizer is None or not len(at.theta) or len(distinct) < len(models):
        return train_in_parts(models, at, optimizer, starts=starts, **options)
    pairs = list(zip(models, distinct, strict=True))
    logger.info("searching with the distinct rows, %d of %d", len(distinct[0].firsts), models[0].n_rows)
    few = [model.merged(each.firsts, each.count) for model, each in pairs]
    begins = [
        None if start is None else model.gathered(start, each.number)
        for (model, each), start in zip(pairs, starts, strict=True)
    ]
    training: Training[Start] = train_in_parts(few, at, optimizer, starts=begins, **options)
    spread = [
        model.spread(result.start, each.number, each.count)
        for (model, each), result in zip(pairs, training.best, strict=True)
    ]
    training = training._replace(best=[], search=None)  # frees their matrices
    best = [model.infer(training.at, start) for model, start in zip(models, spread, strict=True)]
    return training._replace(best=best)
