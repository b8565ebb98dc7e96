"""The parameters of a classifier are checked here, and become the plan of a fit."""

import os
import warnings
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any, NamedTuple, Protocol

import numpy as np
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, CompoundKernel, ConstantKernel, Kernel, WhiteKernel

from postlin import likelihoods, rules, schedules
from postlin._validation import as_object, check_tolerance
from postlin.estimator import strategies
from postlin.estimator.fits import Fit
from postlin.exceptions import ConvergenceWarning
from postlin.kernels import can_split, split_white
from postlin.learning.hyperparameters import Hyperparameters
from postlin.learning.search import Callback
from postlin.likelihoods import BinaryLikelihood
from postlin.likelihoods.softmax import Softmax
from postlin.linalg.minimise import OPTIMIZERS, Optimizer
from postlin.rules.binary import Rule
from postlin.rules.joint import JointRule, binary_counterpart, check_joint, joint_rule
from postlin.schedules import Schedule


def default_kernel() -> Kernel:
    """The paper's kernel: 10 RBF(1), which is learned, plus white noise of 0.1, which is fixed."""
    return ConstantKernel(10.0, (1e-5, 1e10)) * RBF(1.0, (1e-5, 1e5)) + WhiteKernel(0.1, "fixed")


class SparsePlan(NamedTuple):
    """How to fit with inducing points."""

    inducing: int | np.ndarray  # the number of points, or the points
    learn_inducing: bool
    coarse_rows: int | None
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
    fold_noise: bool
    tol: float
    max_iter: int
    sparse: SparsePlan | None
    # these change no result, and are no part of the settings
    callback: Callback | None = field(repr=False)
    keep_on_interrupt: bool = field(repr=False)
    verbose: int = field(repr=False)

    @property
    def settings(self) -> str:
        """All settings that the result of a fit with inducing points depends on, as text."""
        assert self.sparse is not None
        points = np.asarray(self.sparse.inducing).tolist()
        sparse = self.sparse._replace(checkpoint=None, inducing=points)
        optimizer = getattr(self.optimizer, "__qualname__", self.optimizer)
        parameters = [  # to the last digit, which the repr of a kernel does not show
            f"{name}={value.tolist() if isinstance(value, np.ndarray) else value!r}"
            for name, value in sorted(self.start.kernel.get_params().items())
        ]
        plan = replace(self, optimizer=optimizer, sparse=sparse)
        return repr([plan, parameters, self.start.theta.tolist()])

    def among(self, classes: np.ndarray) -> "Plan":
        """The plan for these classes; in a joint fit with separate kernels each class gets a copy."""
        if len(classes) == 1:
            raise ValueError(
                f"y holds one class only, {classes[0]}; a classifier needs examples of two classes."
            )
        if len(classes) == 2:
            return replace(self, joint=None, multi_class="one_vs_one", shared=False)
        if self.joint is None:
            return self
        one = self.start.kernel
        kernel = one if self.shared else CompoundKernel([clone(one) for _ in classes])
        return replace(self, start=Hyperparameters(kernel, Softmax()))

    @property
    def search(self) -> dict[str, Any]:
        """The arguments of ``train`` that the parameters set."""
        return {
            "optimizer": self.optimizer,
            "restarts": self.n_restarts,
            "callback": self.callback,
            "keep_on_interrupt": self.keep_on_interrupt,
        }

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
    if model.optimizer is not None and len(start.theta):
        start = _inside(start, finite=model.n_restarts_optimizer > 0)
    return Plan(
        start,
        rule,
        joint_rule(model.inference) if joint else None,
        model.multi_class,
        joint if model.shared_kernel is None else bool(model.shared_kernel),
        as_object(model.schedule, schedules.REGISTRY, Schedule, "schedule"),
        model.optimizer,
        model.n_restarts_optimizer,
        fold_noise,
        model.tol,
        model.max_iter_predict,
        _sparse(model, kernel),
        model.callback,
        model.keep_on_interrupt,
        model.verbose,
    )


def _inside(start: Hyperparameters, *, finite: bool) -> Hyperparameters:
    """The start, moved into the bounds with a warning, after a check of these."""
    start.check_bounds(finite=finite)
    outside = start.outside()
    if not outside:
        return start
    warnings.warn(
        ConvergenceWarning(
            f"the kernel starts with {' and '.join(outside)}: the search begins at the nearest bound; "
            "widen the bounds or change the start."
        ),
        stacklevel=4,  # the caller of ``fit``
    )
    return start.inside(start.theta)


def _sparse(model: Parameters, kernel: Kernel) -> SparsePlan | None:
    """The options of a fit with inducing points, checked; None for exact inference."""
    if model.inducing is None:
        for name in ("learn_inducing", "coarse_rows", "checkpoint"):
            if getattr(model, name) not in (None, False):
                raise ValueError(
                    f"{name} is for fits with inducing points: set inducing too, as in inducing=500."
                )
        return None
    check_inducing(model.inducing)
    _check_sparse(model, kernel)
    rows, path, state = model.coarse_rows, model.checkpoint, model.random_state
    if not (rows is None or (_is_integer(rows) and rows >= 1)):
        raise ValueError(f"coarse_rows must be a positive integer or None, got {rows!r}.")
    if not (path is None or isinstance(path, str | os.PathLike)):
        raise ValueError(f"checkpoint must be a path or None, got {path!r}.")
    coarse = None if rows is None else int(rows)
    seed = int(state) if isinstance(state, Integral) else None
    return SparsePlan(model.inducing, bool(model.learn_inducing), coarse, path, seed)


def _check_sparse(model: Parameters, kernel: Kernel) -> None:
    """Raise ``ValueError`` for options that only exact inference has."""
    if model.device not in (None, "cpu"):
        raise ValueError(
            f"inference with inducing points runs on the CPU, got device={model.device!r}: leave "
            "device out, or use exact inference there."
        )
    if model.multi_class == "joint":
        raise ValueError(
            "multi_class='joint' has no inducing points: use 'one_vs_rest' or 'one_vs_one' with them."
        )
    schedule = as_object(model.schedule, schedules.REGISTRY, Schedule, "schedule")
    if schedule.name != "parallel" or schedule.iterations is not None:
        raise ValueError(
            f"inducing points have the parallel schedule only, iterated to convergence, got {schedule}."
        )
    if not kernel.requires_vector_input:
        raise ValueError(
            f"inducing points need a kernel on rows of numbers, and {kernel} takes other inputs."
        )


def _check_options(model: Parameters) -> None:
    """Raise ``ValueError`` for values that an option cannot have."""
    check_tolerance(model.tol, model.max_iter_predict, "max_iter_predict")
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
            "inducing must be None, a positive number of points or an array (points, features), got "
            f"{shown}."
        )
