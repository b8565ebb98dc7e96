"""Learning hyperparameters: searches from one start or several, of which the best end counts."""

from collections.abc import Sequence
from typing import Generic, NamedTuple, Protocol

import numpy as np

from postlin._typing import Array
from postlin.exceptions import NotPositiveDefiniteError
from postlin.inference.result import Approximation
from postlin.learning.hyperparameters import Hyperparameters
from postlin.learning.hyperprior import BoundARDPrior, Hyperprior
from postlin.learning.models import LARGE, Model, Path, Start
from postlin.learning.progress import LED, Costs, Sought, watched
from postlin.learning.search import LOOSEST, Callback, Search, logger
from postlin.learning.starts import Guide
from postlin.linalg.minimise import Minimum, Optimizer, Worth, minimise, optimise

#: The optimisers that climb from the start; others look around in ways of their own.
_CLIMBERS = ("bfgs", "fmin_l_bfgs_b")
#: When the search with equal length scales ends, since another goes on from there.
_ROUGHLY = Worth(gain=1e-4, slope=0.1)
#: The largest change of a log-parameter in the first step of a search whose curvature is known.
_REACH = 1.0
#: Log evidences of fixed points that differ by more than this are not those of the same.
_AMBIGUOUS = 1e-3
#: Ends whose values differ by less than this part are the same optimum.
_EQUAL = 1e-7
#: The gain in log evidence from a wider bound that users are told about.
_NOTICEABLE = 0.1
#: The loss in log evidence up to which an optimum in parts of the data may be the best in all of them.
_RIVAL = 5.0
#: What users are told where the kernel informs nowhere.
BLIND = (
    "the kernel cannot tell the rows apart, so that all new rows have nearly the same probability: "
    "scale the features, or use a kernel that depends on them."
)
#: Starts that differ by less than this in all log-parameters are not tried both.
_NEARBY = 1.0


class Forecast(Protocol[Start]):
    """Tells where the optimum may be."""

    def __call__(
        self, theta: Array, slope: Array, paths: Sequence[Path[Start]]
    ) -> tuple[Array | None, Array | None]:
        """A point, if it knows one, and the curvature there, from the slope at theta.

        ``paths`` may learn what inference is expected to find there.
        """


class Training(NamedTuple, Generic[Start]):
    """The best hyperparameters found, the approximations there, and how the search went.

    ``path`` holds the log-parameters and the log evidence of every evaluation, in order; ``message``
    says why the optimiser did not converge, or is None. ``narrow`` names the bounds that keep the
    evidence lower, ``constant`` tells that all new rows get nearly the same probability, and
    ``blind`` that this is so because the kernel tells rows apart nowhere. ``ambiguous`` says that
    inference from another start has another result. ``curvature`` is the Hessian of minus the log
    evidence, if the search has modelled it, ``rivals`` are other optima that are nearly as good, and
    ``search`` is the objective.
    """

    at: Hyperparameters
    best: list[Approximation[Start]]
    message: str | None
    path: list[tuple[Array, float]]
    interrupted: bool = False
    narrow: tuple[str, ...] = ()
    constant: bool = False
    blind: bool = False
    ambiguous: str = ""
    curvature: Array | None = None
    rivals: tuple[Array, ...] = ()
    search: Search[Start] | None = None

    def remarks(self) -> list[str]:
        """A sentence about each problem of the search, with a remedy."""
        found = [self.ambiguous] if self.ambiguous else []
        if self.interrupted:
            found.append(
                "interrupted: the hyperparameters are the best found so far, after "
                f"{len(self.path)} evaluations; fit again with warm_start=True to go on."
            )
        elif self.message is not None:
            found.append(
                f"the optimiser did not converge ({self.message}); give it another start with "
                "n_restarts_optimizer, or scale the features."
            )
        found += [
            f"the log evidence still rises at the {bound}: widen its bounds and fit again, or fix the "
            "parameter."
            for bound in self.narrow
        ]
        if self.blind:
            found.append(BLIND)
        return found


class Climb(Generic[Start]):
    """Searches from one start or several, of which the best end counts."""

    def __init__(
        self,
        search: Search[Start],
        optimizer: Optimizer | str,
        ceiling: float = np.inf,
        worth: Worth | None = None,
    ) -> None:
        """Constants of the kernel pass ``ceiling`` only where the evidence rises noticeably."""
        self.search, self.optimizer = search, optimizer
        at = search.hyperparameters
        self.bounds, self.worth = at.bounds, worth or search.models[0].worth
        self._soft = soft_bounds(at, ceiling)
        self.ends: list[tuple[Minimum, list[Path[Start]]]] = []

    @property
    def best(self) -> Minimum:
        """The best end so far, the earliest among equals; its path is made the search's own."""
        best = self.ends[0]
        for end in self.ends[1:]:
            if end[0].value < best[0].value - _EQUAL * max(1.0, abs(best[0].value)):
                best = end
        found, self.search.paths = best
        return found

    def rivals(self) -> tuple[Array, ...]:
        """Other ends that are nearly as good as the best."""
        kept = [self.best]
        for end, _ in self.ends:
            if end.value < kept[0].value + _RIVAL and all(_apart(end.x, k.x) > _NEARBY for k in kept):
                kept.append(end)
        return tuple(end.x for end in kept[1:])

    def run(
        self,
        theta: Array,
        curvature: Array | None = None,
        *,
        go_on: bool = False,
        forecast: Forecast[Start] | None = None,
    ) -> None:
        """Search from theta, where the curvature may be known, and a forecast of the optimum.

        With ``go_on`` the last search ended there, and inference continues from its results.
        """
        if self.ends and not go_on:
            self.search.restart()
        if self.optimizer == "bfgs":
            end = self._minimise(theta, self.worth, curvature, forecast)
        else:
            end = optimise(self.search, theta, self.bounds, self.optimizer, self.worth)
        self.ends.append((end, self.search.paths))

    def _minimise(
        self,
        theta: Array,
        worth: Worth,
        curvature: Array | None = None,
        forecast: Forecast[Start] | None = None,
    ) -> Minimum:
        search = self.search
        return minimise(
            search,
            theta,
            self.bounds,
            worth,
            curvature=curvature,
            reach=_REACH,
            forecast=None if forecast is None else lambda x, slope: forecast(x, slope, search.paths),
            again=search.again,
            value_at=search.value,
            soft=self._soft,
        )

    def try_from(self, theta: Array) -> None:
        """Search from theta roughly, and to the end only if that is better than the best so far."""
        best = self.best
        self.search.restart()
        end = self._minimise(theta, _ROUGHLY)
        if end.value < best.value - LOOSEST:
            self.run(end.x, end.curvature, go_on=True)

    def run_tied(self, theta: Array, prior: BoundARDPrior) -> None:
        """Search with equal length scales of all features first, and then with their own.

        The curvature that the first search has seen and that of the prior begin the second.
        """
        tied = prior.tied(theta)

        def objective(t: Array) -> tuple[float, Array]:
            value, slope = self.search(tied.at(t))
            return value, slope @ tied.directions

        def again(t: Array, loss: float) -> tuple[float, Array] | None:
            found = self.search.again(tied.at(t), loss)
            return None if found is None else (found[0], found[1] @ tied.directions)

        bounds = tied.bounds(self.bounds)
        if (bounds[:, 0] > bounds[:, 1]).any():
            return self.run(theta)
        end = minimise(objective, tied.nearest(theta), bounds, _ROUGHLY, again=again)
        curvature = None
        if end.curvature is not None:
            apart = prior.curvature(len(theta))
            curvature = tied.means @ end.curvature @ tied.means.T + apart
        return self.run(tied.at(end.x), curvature)

    def narrow(self) -> tuple[str, ...]:
        """The bounds at the best end without which the log evidence would be noticeably larger.

        The gain follows from the slope and from the curvature, which one more value inside of the bound
        tells. Where it is small, as for variances that grow without end, slopes halve in every log-unit
        or faster, so that the gain is about twice the slope.
        """
        (x, value, *_), found = self.best, []
        at = self.search.hyperparameters.at(x)
        for k, side in at.at_bounds():
            outwards = (-1.0, 1.0)[side]
            rise = -float(self.search(x)[1][k]) * outwards
            if 2.0 * rise < _NOTICEABLE:
                continue
            step = min(0.5, 0.5 * float(np.ptp(self.bounds[k])))
            inside = x.copy()
            inside[k] -= outwards * step
            curvature = 2.0 * (self.search(inside)[0] - value - rise * step) / step**2
            if curvature <= 0.25 * rise or rise**2 >= 2.0 * curvature * _NOTICEABLE:
                bound = f"{np.exp(self.bounds[k, side]):g}"
                found.append(f"{('lower', 'upper')[side]} bound of {at.names[k]}, {bound}")
        return tuple(found)

    def look_around(self, guide: Guide, *, elsewhere: bool = True) -> None:
        """Search again where the data suggest that a better optimum is elsewhere.

        If the search began far from a natural length scale, values at such are computed ``elsewhere``;
        one that is better than the best end begins another search. So does a length scale that suits
        rows in clusters far apart, if they are, and a short one, if the best end is hardly better than
        constant probabilities.
        """
        best, looks = self.best, guide.looks
        first = self.search.path[0][0] if self.search.path else best.x  # it had no evidence to follow
        new = [theta for theta in looks if _apart(theta, best.x) > _NEARBY]
        if elsewhere and new and _apart(looks[0], first) > _NEARBY:
            self.search.restart()
            values = [self.search(theta)[0] for theta in new]
            if min(values) < best.value - LOOSEST:
                logger.info("searching again from a point with log evidence %.2f", -min(values))
                self.run(new[int(np.argmin(values))])
        for theta in guide.near:
            self.try_from(theta)
        if not guide.has_learned(self.search.log_evidence(self.best.x)):
            for theta in guide.short:
                self.try_from(theta)


def soft_bounds(at: Hyperparameters, ceiling: float) -> Array:
    """The soft upper bounds of the log-parameters: that of the kernel's constants is the ceiling."""
    soft = np.full(len(at.bounds), np.inf)
    for where in at.where("constant_value"):
        soft[where] = np.log(ceiling)
    return soft


def _apart(one: Array, other: Array) -> float:
    """The largest difference between two points in any log-parameter."""
    return float(np.abs(one - other).max())


def train(
    models: Sequence[Model[Start]],
    at: Hyperparameters,
    optimizer: Optimizer | str | None,
    *,
    restarts: int = 0,
    rng: np.random.RandomState,
    starts: Sequence[Start | None],
    callback: Callback | None = None,
    keep_on_interrupt: bool = False,
    curvature: Array | None = None,
    rivals: Sequence[Array] | None = None,
    forecast: Forecast[Start] | None = None,
    worth: Worth | None = None,
    hyperprior: Hyperprior | None = None,
    ceiling: float = np.inf,
    guide: Guide | None = None,
    look_around: bool = True,
    name: str = "",
) -> Training[Start]:
    """Maximise the evidence from the hyperparameters ``at``, and from random ones in the restarts.

    The first inference of each model begins at its item of ``starts``. ``curvature`` is the Hessian of
    minus the log evidence at ``at``, if it is known, and ``forecast`` tells more of the optimum.
    ``rivals`` are starts besides ``at``, if not those that the likelihood names. ``worth`` says when
    the search ends, if it is not for the model to say. With ``keep_on_interrupt`` Ctrl-C ends it
    at the best point so far. The ``hyperprior`` enters the search and not the evidence. Constants of
    the kernel pass ``ceiling`` only where the evidence rises noticeably. With a ``guide``, a start that
    tells nothing is moved, and with ``look_around`` other starts are tried afterwards. ``name`` is that
    of the problem, for the log.
    """
    search = Search(models, at, starts, optimizer == "bfgs", callback, hyperprior)
    n_parameters = 0 if optimizer is None else len(at.theta)
    is_led = curvature is not None or forecast is not None
    search.sought = _announced(models, n_parameters, 1 + restarts, is_led=is_led)
    if optimizer is None or len(at.theta) == 0:
        sight = (False, False) if guide is None else guide.verdict(at.theta, at.theta)
        return Training(at.at(at.theta), search.at(at.theta), None, [], False, (), *sight)
    climb = Climb(search, optimizer, ceiling, worth)
    first, *others = at.starts if rivals is None else (at.theta, *rivals)
    interrupted = False
    try:
        if guide is not None and optimizer in _CLIMBERS:
            first = guide.informing(first)
        looks = look_around and optimizer in _CLIMBERS
        if looks and curvature is None and isinstance(hyperprior, BoundARDPrior):
            climb.run_tied(first, hyperprior)
        else:
            climb.run(first, curvature, forecast=forecast)
        for theta in (*others, *(at.drawn(rng) for _ in range(restarts))):
            climb.run(theta)
        if guide is not None and looks:
            climb.look_around(guide, elsewhere=curvature is None)
        narrow = climb.narrow()
        found = climb.best
    except KeyboardInterrupt:
        if not keep_on_interrupt or not (search.path or is_led):
            raise
        best = search.best() if search.path else at.theta  # where searches before this one ended
        found, interrupted, narrow = Minimum(best, np.nan, None), True, ()
    stopped = "interrupted, " if interrupted else ""
    watched().searched(f"{stopped}inference at the best hyperparameters")
    fits, there = search.at(found.x), at.at(found.x)
    ambiguous = "" if interrupted else _from_the_prior(models, there, fits)
    value, n = sum(fit.log_evidence for fit in fits), len(search.path)
    label = f"{name}: " if name else ""
    logger.info("%s%s: log evidence %.6f after %d evaluations", label, there.kernel, value, n)
    sight = (False, False) if guide is None else guide.verdict(first, found.x)
    return Training(
        there,
        fits,
        found.message,
        search.path,
        interrupted,
        narrow,
        *sight,
        ambiguous=ambiguous,
        curvature=found.curvature,
        rivals=() if interrupted else climb.rivals(),
        search=search,
    )


def announce(models: Sequence[Model[Start]], n_parameters: int) -> None:
    """Tell those who watch how long all the searches of a problem may take."""
    progress = watched()
    if progress.is_shown:
        costs = models[0].costs(n_parameters)
        if models[0].n_rows >= LARGE:  # where searches on parts of the rows come first
            costs = costs._replace(evaluations=min(costs.evaluations, LED + 1))
        progress.say("", len(models) * costs.seconds)


def _announced(
    models: Sequence[Model[Start]], n_parameters: int, searches: int, *, is_led: bool
) -> Sought | None:
    """What is told of the evaluations of a search; None if nobody watches.

    A search that others have led to its start takes fewer.
    """
    progress = watched()
    if not progress.is_shown:
        return None
    largest = max(models, key=lambda model: model.n_rows)
    n, first, later = largest.costs(n_parameters)
    all_of = sum((model.n_rows / largest.n_rows) ** 3 for model in models)
    n = min(n, LED) if is_led else n
    return progress.search(Costs(searches * n, all_of * first, all_of * later))


def _from_the_prior(
    models: Sequence[Model[Start]], at: Hyperparameters, fits: list[Approximation[Start]]
) -> str:
    """Infer once more without earlier results, and keep what is better; a sentence if they differ.

    Most rules have one fixed point where likelihoods are log-concave; with others there may be several.
    With inducing points this would cost as many passes as an evaluation, and is left out.
    """
    said, log_concave = "", at.likelihood.log_concave
    other_way = "use fold_noise=True or a log-concave likelihood such as probit"
    cure = "use inference='pl'" if log_concave else other_way
    for k, model in enumerate(models):
        if not model.compares_starts or (log_concave and model.rule.is_unique):
            continue
        try:
            other = model.infer(at)
        except NotPositiveDefiniteError:
            continue
        before, now = fits[k].log_evidence, other.log_evidence
        if not (other.converged and fits[k].converged) or abs(now - before) <= _AMBIGUOUS:
            continue
        said = (
            "inference has more than one fixed point here, with log evidences "
            f"{max(now, before):.4f}, which is kept, and {min(now, before):.4f}: add white noise to "
            f"the kernel, or {cure}."
        )
        if now > before:
            fits[k] = other
    return said
