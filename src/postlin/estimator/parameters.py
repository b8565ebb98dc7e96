"""The parameters of a classifier are checked here, and become the plan of a fit."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
from sklearn.base import clone
from sklearn.gaussian_process.kernels import (
    RBF,
    CompoundKernel,
    ConstantKernel,
    Kernel,
    Matern,
    WhiteKernel,
)

from postlin import likelihoods, rules, schedules
from postlin._typing import Array
from postlin._validation import as_object, check_tolerance
from postlin.estimator import strategies
from postlin.estimator.fits import Fit
from postlin.inference.prior_mean import PriorMean, check_prior_mean, is_zero
from postlin.kernels import can_split, length_scales, split_white
from postlin.learning.hyperparameters import Hyperparameters
from postlin.learning.hyperprior import ARDPrior, Hyperprior
from postlin.learning.search import Callback
from postlin.learning.starts import Guide, natural_length, spread
from postlin.likelihoods import BinaryLikelihood
from postlin.likelihoods.softmax import Softmax
from postlin.linalg.minimise import OPTIMIZERS, Optimizer
from postlin.rules.binary import Rule
from postlin.rules.joint import JointRule, binary_counterpart, check_joint, joint_rule
from postlin.schedules import Schedule

#: The variance of the default kernel that a search passes only if the evidence rises noticeably. On 47
#: real data sets half of the searches would go on, for hundredths of a nat and a fifth of the time.
_CEILING = 1e5


def default_kernel(length_scale: float = 1.0) -> Kernel:
    """The paper's kernel: 10 RBF(ℓ), which is learned, plus white noise of 0.1, which is fixed."""
    length_scale = min(max(length_scale, 1e-300), 1e300)  # with bounds that are numbers
    rbf = RBF(length_scale, (1e-5 * length_scale, 1e5 * length_scale))
    return ConstantKernel(10.0, (1e-5, 1e10)) * rbf + WhiteKernel(0.1, "fixed")


def local_kernels(deviations: Array) -> list[Kernel]:
    """The kernels that are compared with neighbours, whose length scales, one a feature, are √d."""
    scale = np.clip(np.where(deviations > 0, deviations, 1.0) * np.sqrt(len(deviations)), 1e-290, 1e290)
    bounds = np.stack([1e-5 * scale, 1e5 * scale], axis=1)
    shapes = RBF(scale, bounds), Matern(scale, bounds, nu=0.5), Matern(scale, bounds, nu=1.5)
    return [ConstantKernel(10.0, (1e-3, 1e4)) * s + WhiteKernel(0.1, (1e-4, 10.0)) for s in shapes]


class SparsePlan(NamedTuple):
    """How to fit with inducing points."""

    inducing: int | np.ndarray  # the number of points, or the points
    learn_inducing: bool
    coarse_rows: int | str | None
    checkpoint: str | os.PathLike[str] | None
    seed: int | None  # the random state, if it is a number


class LocalPlan(NamedTuple):
    """How to fit with neighbours."""

    k: int | None  # None if it is to be chosen
    inducing: int | np.ndarray | str | None  # the number of points, the points, "auto" or none
    checkpoint: str | os.PathLike[str] | None
    seed: int | None  # the random state, if it is a number


@dataclass(frozen=True)
class Plan:
    """How to fit: the method, the starting hyperparameters, and how to search for better ones."""

    start: Hyperparameters
    rule: Rule
    joint: JointRule | None  # the rule if all classes are fitted jointly
    multi_class: str
    shared: bool  # whether classes share their hyperparameters
    schedule: Schedule
    optimizer: Optimizer | str | None
    n_restarts: int
    hyperprior: ARDPrior | Hyperprior | None
    default: bool  # whether the kernel is the default one, whose start depends on the data
    fold_noise: bool
    corrected: bool
    prior_mean: PriorMean
    tol: float
    max_iter: int
    sparse: SparsePlan | None
    local: LocalPlan | None
    # these change no result, and are no part of the settings
    callback: Callback | None = field(repr=False)
    keep_on_interrupt: bool = field(repr=False)
    verbose: int = field(repr=False)
    remarks: tuple[str, ...] = field(repr=False)  # what to tell the user about the parameters
    deviations: Array = field(default_factory=lambda: np.zeros(0), repr=False)  # of the features

    @property
    def method(self) -> str:
        """The kind of inference, by the name that fits of it have."""
        return "sparse" if self.sparse else "local" if self.local else "exact"

    @property
    def settings(self) -> str:
        """All settings that the result of a fit with a checkpoint depends on, as text."""
        sparse, local = self.sparse, self.local
        if sparse is not None:
            sparse = sparse._replace(checkpoint=None, inducing=np.asarray(sparse.inducing).tolist())
        if local is not None:
            local = local._replace(checkpoint=None, inducing=np.asarray(local.inducing).tolist())
        optimizer = getattr(self.optimizer, "__qualname__", self.optimizer)
        parameters = [  # to the last digit, which the repr of a kernel does not show
            f"{name}={value.tolist() if isinstance(value, np.ndarray) else value!r}"
            for name, value in sorted(self.start.kernel.get_params().items())
        ]
        mean: Any = getattr(self.prior_mean, "__qualname__", self.prior_mean)
        plan = replace(
            self, optimizer=optimizer, sparse=sparse, local=local, hyperprior=None, prior_mean=mean
        )
        prior: Any = self.hyperprior
        about = getattr(prior, "__qualname__", type(prior).__qualname__), getattr(prior, "__dict__", {})
        return repr([plan, about, parameters, self.start.theta.tolist()])

    def suited(self, classes: np.ndarray, rows: np.ndarray, weight: Array | None) -> "Plan":
        """The plan for data with these classes, and for these rows of them.

        The default kernel starts at √d for standardised features; in a joint fit with separate kernels
        each class gets a copy.
        """
        if len(classes) == 1:
            raise ValueError(
                f"y holds one class only, {classes[0]}; a classifier needs examples of two classes."
            )
        deviations = spread(rows, weight)
        one = default_kernel(natural_length(deviations)) if self.default else self.start.kernel
        plan = replace(self, start=replace(self.start, kernel=one), deviations=deviations)
        if len(classes) == 2:
            return replace(plan, joint=None, multi_class="one_vs_one", shared=False)
        if self.multi_class != "one_vs_rest" and not is_zero(self.prior_mean):
            raise ValueError(
                f"prior_mean has no meaning with multi_class={self.multi_class!r} and "
                f"{len(classes)} classes: it would favour none, or those that come later in the order "
                "of names; use 'one_vs_rest', where it is the mean of each class against the rest."
            )
        if self.joint is None:
            return plan
        kernel = one if self.shared else CompoundKernel([clone(one) for _ in classes])
        return replace(plan, start=Hyperparameters(kernel, Softmax()))

    @property
    def search(self) -> dict[str, Any]:
        """The arguments of ``train`` that the parameters set."""
        return {
            "optimizer": self.optimizer,
            "restarts": self.n_restarts,
            "ceiling": _CEILING if self.default else np.inf,
            "callback": self.callback,
            "keep_on_interrupt": self.keep_on_interrupt,
        }

    def guided(
        self, at: Hyperparameters, rows: np.ndarray, baselines: Sequence[float], *, warm: bool
    ) -> dict[str, Any]:
        """The arguments of ``train`` that depend on the data; a warm start keeps to its optimum."""
        prior = self.hyperprior
        if isinstance(prior, ARDPrior):
            prior = prior.bound(at, self.deviations)
        guide = Guide(at, rows, self.deviations, baselines, has_mean=callable(self.prior_mean))
        return {"hyperprior": prior, "guide": guide, "look_around": not warm}

    def start_after(self, earlier: Fit | None) -> Hyperparameters:
        """The starting hyperparameters: those of an earlier fit, if there is one."""
        n = len(self.start.theta)
        return self.start.inside(earlier.hyperparameters.theta[:n]) if earlier else self.start


class Parameters(Protocol):
    """A ``GPClassifier`` as it is before ``fit``: its parameters can be anything that a user passes."""

    n_features_in_: int
    feature_names_in_: np.ndarray

    def __getattr__(self, name: str) -> Any:
        """The parameter of this name."""


def plan_of(model: Parameters) -> Plan:
    """Check the parameters of a ``GPClassifier``, as far as that needs no data, and make a plan."""
    if isinstance(model.kernel, CompoundKernel):
        raise ValueError("kernel cannot be a CompoundKernel")
    if not (model.kernel is None or isinstance(model.kernel, Kernel)):
        raise ValueError(f"kernel must be a scikit-learn kernel or None, got {model.kernel!r}.")
    kernel = default_kernel() if model.kernel is None else clone(model.kernel)
    joint = model.multi_class == "joint"
    inference = binary_counterpart(model.inference) if joint else model.inference
    rule = as_object(inference, rules.REGISTRY, Rule, "inference")
    likelihood = as_object(model.likelihood, likelihoods.REGISTRY, BinaryLikelihood, "likelihood")
    if model.fold_noise not in (True, False, "auto"):
        raise ValueError(f"fold_noise must be True, False or 'auto', got {model.fold_noise!r}.")
    learns = bool(likelihood.free)
    fold_noise = learns and can_split(kernel) if model.fold_noise == "auto" else bool(model.fold_noise)
    if fold_noise:  # a likelihood with noise is always differentiable, as rules may need it to be
        split_white(kernel)
    else:
        rule.check(likelihood)
    _check_options(model)
    if joint:
        check_joint(likelihood, model.inference, model.schedule, fold_noise)
    start = Hyperparameters(kernel, likelihood)
    start.check()
    remarks: tuple[str, ...] = ()
    if model.optimizer is not None and len(start.theta):
        start, remarks = _inside(start, finite=model.n_restarts_optimizer > 0)
    return Plan(
        start,
        rule,
        joint_rule(model.inference) if joint else None,
        model.multi_class,
        joint if model.shared_kernel is None else bool(model.shared_kernel),
        as_object(model.schedule, schedules.REGISTRY, Schedule, "schedule"),
        model.optimizer,
        model.n_restarts_optimizer,
        _hyperprior(model.hyperprior, start),
        model.kernel is None,
        fold_noise,
        _corrected(model, rule, likelihood),
        model.prior_mean if callable(model.prior_mean) else float(model.prior_mean),
        model.tol,
        model.max_iter_predict,
        _sparse(model, kernel) if model.n_neighbors is None else None,
        None if model.n_neighbors is None else _local(model, kernel),
        model.callback,
        model.keep_on_interrupt,
        model.verbose,
        remarks,
    )


def _inside(start: Hyperparameters, *, finite: bool) -> tuple[Hyperparameters, tuple[str, ...]]:
    """The start, moved into the bounds, which are checked, and a remark if that was necessary."""
    start.check_bounds(finite=finite)
    outside = start.outside()
    if not outside:
        return start, ()
    remark = (
        f"the kernel starts with {' and '.join(outside)}: the search begins at the nearest bound; "
        "widen the bounds or change the start."
    )
    return start.inside(start.theta), (remark,)


def _corrected(model: Parameters, rule: Rule, likelihood: BinaryLikelihood) -> bool:
    """Whether probabilities are corrected, if they can be."""
    if not isinstance(model.corrected, bool | np.bool_):
        raise ValueError(f"corrected must be True or False, got {model.corrected!r}.")
    if not model.corrected:
        return False
    if model.multi_class == "joint":
        raise ValueError(
            "multi_class='joint' has no correction: use 'one_vs_rest' or 'one_vs_one', or "
            "corrected=False."
        )
    for name in ("inducing", "n_neighbors"):
        if getattr(model, name) is not None:
            raise ValueError(
                f"corrected=True is for exact inference, on all rows, and {name} is set: leave one of "
                "the two out."
            )
    rule.check_correction(likelihood)
    return True


def _hyperprior(choice: Any, start: Hyperparameters) -> ARDPrior | Hyperprior | None:
    """The hyperprior of this name, or the one that was passed."""
    has_own = any(len(where) > 1 for where in start.where("length_scale"))
    if isinstance(choice, str) and choice == "auto":
        return ARDPrior() if has_own else None
    if isinstance(choice, ARDPrior) and not has_own:
        raise ValueError(
            f"ARDPrior needs a kernel with a free length scale for each feature, and {start.kernel} "
            "has none: use for example RBF(np.ones(d)), or hyperprior=None."
        )
    if choice is None or isinstance(choice, ARDPrior) or callable(choice):
        return cast(ARDPrior | Hyperprior | None, choice)
    raise ValueError(
        "hyperprior must be 'auto', None, an ARDPrior or a function from the log-parameters to a log "
        f"density and its gradient, got {choice!r}."
    )


def _sparse(model: Parameters, kernel: Kernel) -> SparsePlan | None:
    """The options of a fit with inducing points, checked; None for exact inference."""
    if model.inducing is None:
        for name in ("learn_inducing", "coarse_rows", "checkpoint"):
            if _is_set(model, name):
                also = " or n_neighbors" if name == "checkpoint" else ""
                raise ValueError(
                    f"{name} is for fits with inducing points{also}: set inducing too, as in "
                    "inducing=500."
                )
        return None
    check_inducing(model.inducing)
    _check_sparse(model, kernel)
    rows = model.coarse_rows
    automatic = isinstance(rows, str) and rows == "auto"
    if not (automatic or rows is None or (_is_integer(rows) and rows >= 1)):
        raise ValueError(f"coarse_rows must be 'auto', a positive integer or None, got {rows!r}.")
    coarse = rows if automatic or rows is None else int(rows)
    return SparsePlan(model.inducing, bool(model.learn_inducing), coarse, *_resumed(model))


def _is_set(model: Parameters, name: str) -> bool:
    """Whether an option of fits with inducing points is set to another value than the default."""
    value = getattr(model, name)
    return not (value is None or value is False or (name == "coarse_rows" and value == "auto"))


def _resumed(model: Parameters) -> tuple[str | os.PathLike[str] | None, int | None]:
    """The checkpoint, checked, and the random state if it is a number."""
    path, state = model.checkpoint, model.random_state
    if not (path is None or isinstance(path, str | os.PathLike)):
        raise ValueError(f"checkpoint must be a path or None, got {path!r}.")
    return path, int(state) if isinstance(state, Integral) else None


def _local(model: Parameters, kernel: Kernel) -> LocalPlan:
    """The options of a fit with neighbours, checked."""
    k, inducing = model.n_neighbors, model.inducing
    automatic = isinstance(k, str) and k == "auto"
    if not automatic and not (_is_integer(k) and k >= 2):
        raise ValueError(f"n_neighbors must be 2 or more, 'auto' or None, got {k!r}.")
    if not (inducing is None or (isinstance(inducing, str) and inducing == "auto")):
        check_inducing(inducing)
    for name in ("learn_inducing", "coarse_rows"):
        if _is_set(model, name):
            raise ValueError(
                f"{name} is for fits with inducing points alone: leave it out with n_neighbors."
            )
    if model.shared_kernel is not None and not model.shared_kernel:
        raise ValueError(
            "with n_neighbors all classes share one kernel, by whose metric rows are neighbours: leave "
            "shared_kernel out."
        )
    _check_unlike_exact(model, kernel, "neighbours")
    if model.kernel is not None:
        from postlin.kernels.stacks import metric  # only when needed

        lengths = [len(np.atleast_1d(scale)) for scale in length_scales(kernel)]
        metric(kernel, max(lengths, default=1))
    return LocalPlan(None if automatic else int(k), inducing, *_resumed(model))


def _check_sparse(model: Parameters, kernel: Kernel) -> None:
    """Raise ``ValueError`` for options that only exact inference has."""
    _check_unlike_exact(model, kernel, "inducing points")


def _check_unlike_exact(model: Parameters, kernel: Kernel, what: str) -> None:
    """Raise ``ValueError`` for a strategy, a schedule or inputs that only exact inference has."""
    if model.multi_class == "joint":
        raise ValueError(
            f"multi_class='joint' has no {what}: use 'one_vs_rest' or 'one_vs_one' with them."
        )
    schedule = as_object(model.schedule, schedules.REGISTRY, Schedule, "schedule")
    if schedule.name != "parallel" or schedule.iterations is not None:
        raise ValueError(
            f"{what} have the parallel schedule only, iterated to convergence, got {schedule}."
        )
    if not kernel.requires_vector_input:
        raise ValueError(f"{what} need a kernel on rows of numbers, and {kernel} takes other inputs.")


def _check_options(model: Parameters) -> None:
    """Raise ``ValueError`` for values that an option cannot have."""
    check_tolerance(model.tol, model.max_iter_predict, "max_iter_predict")
    check_prior_mean(model.prior_mean)
    restarts, jobs = model.n_restarts_optimizer, model.n_jobs
    if not (model.optimizer is None or callable(model.optimizer) or model.optimizer in OPTIMIZERS):
        names = ", ".join(map(repr, OPTIMIZERS))
        raise ValueError(f"optimizer must be {names}, a callable or None, got {model.optimizer!r}.")
    if not (_is_integer(restarts) and restarts >= 0):
        raise ValueError(f"n_restarts_optimizer must be 0 or more, got {restarts!r}.")
    if not (model.callback is None or callable(model.callback)):
        raise ValueError(f"callback must be a function or None, got {model.callback!r}.")
    if not (jobs is None or (_is_integer(jobs) and jobs != 0)):
        raise ValueError(
            f"n_jobs must be None or an integer other than 0 (-1: all processors), got {jobs!r}."
        )
    if model.multi_class not in strategies.REGISTRY:
        names = ", ".join(map(repr, strategies.REGISTRY))
        raise ValueError(f"multi_class must be one of {names}, got {model.multi_class!r}.")


def _is_integer(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def check_inducing(inducing: Any) -> None:
    """Raise ``ValueError`` unless this is a positive number of points or an array of points."""
    try:
        shape = np.shape(inducing)
    except ValueError:  # rows of different lengths
        shape = ()
    if not (inducing >= 1 if _is_integer(inducing) else len(shape) == 2):
        shown = f"shape {shape}" if shape else repr(inducing)
        raise ValueError(
            "inducing must be None, a positive number of points or an array (points, features), or "
            f"'auto' together with n_neighbors, got {shown}."
        )
