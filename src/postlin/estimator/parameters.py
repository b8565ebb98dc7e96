"""The parameters of a classifier, checked in one place, and the plan that follows from them."""

import os
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, NamedTuple, Protocol

import numpy as np
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, CompoundKernel, ConstantKernel, Kernel, WhiteKernel

from postlin import likelihoods, rules, schedules
from postlin._typing import Array
from postlin._validation import as_object, check_tolerance
from postlin.estimator import strategies
from postlin.estimator.strategies import OneVsOne
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

    inducing: int | np.ndarray  # how many points, or where they are
    learn_inducing: bool
    coarse_rows: int | None
    checkpoint: str | os.PathLike[str] | None
    seed: int | None  # the random state, where it is a number


@dataclass(frozen=True)
class Plan:
    """How to fit: the method, where to start, how to search."""

    start: Hyperparameters
    rule: Rule
    joint: JointRule | None  # the rule for all classes jointly, where that is asked for
    multi_class: str
    shared: bool  # whether classes share their hyperparameters
    schedule: Schedule
    optimizer: Optimizer | str | None
    n_restarts: int
    fold_noise: bool
    tol: float
    max_iter: int
    callback: Callback | None
    keep_on_interrupt: bool
    verbose: int
    sparse: SparsePlan | None = None

    @property
    def settings(self) -> str:
        """Everything that the result depends on beside the data, as text."""
        kernel, likelihood = self.start.kernel, self.start.likelihood
        sparse = None if self.sparse is None else self.sparse._replace(checkpoint=None)
        if sparse is not None and np.ndim(sparse.inducing):
            sparse = sparse._replace(inducing=np.asarray(sparse.inducing).tolist())
        parameters = [  # of a kernel to the last digit; those that are kernels have theirs here too
            f"{name}={value.tolist() if isinstance(value, np.ndarray) else value!r}"
            for name, value in sorted(kernel.get_params().items())
        ]
        parts = [type(kernel).__name__, *parameters, likelihood, self.rule, sparse]
        optimizer = getattr(self.optimizer, "__qualname__", self.optimizer)
        classes = [self.multi_class, self.shared]
        options = [optimizer, self.n_restarts, self.fold_noise, self.tol, self.max_iter, *classes]
        return repr([*parts, *map(str, options), self.start.theta.tolist()])

    def without_search(self) -> "Plan":
        """The plan that keeps the starting hyperparameters."""
        return replace(self, optimizer=None)

    def among(self, classes: np.ndarray) -> "Plan":
        """The plan for these classes; in a joint fit with separate kernels each class gets a copy."""
        if len(classes) == 1:
            raise ValueError(
                f"y holds one class only, {classes[0]}; a classifier needs examples of two classes."
            )
        if len(classes) == 2:
            return replace(self, joint=None, multi_class=OneVsOne.name, shared=False)
        if self.joint is None:
            return self
        kernel = self.start.kernel
        if not self.shared:
            kernel = CompoundKernel([clone(kernel) for _ in classes])
        return replace(self, start=Hyperparameters(kernel, Softmax()))

    def start_after(self, theta: Array | None) -> Hyperparameters:
        """The starting hyperparameters: those of an earlier fit, if there is one."""
        if theta is None:
            return self.start
        return self.start.inside(theta[: len(self.start.theta)])


class Parameters(Protocol):
    """The parameters of a ``GPClassifier``, as a user sets them: anything."""

    def __getattr__(self, name: str) -> Any:
        """A parameter."""


def plan_of(model: Parameters) -> Plan:
    """The parameters of a ``GPClassifier``, checked as far as they can be without data."""
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
    fold_noise = model.fold_noise is True or (
        model.fold_noise == "auto" and bool(likelihood.free) and can_split(kernel)
    )
    if fold_noise:  # which makes every likelihood differentiable
        split_white(kernel)
    else:
        rule.check(likelihood)
    _check_options(model)
    if joint:
        check_joint(likelihood, model.inference, model.schedule, fold_noise)
    start = Hyperparameters(kernel, likelihood)
    if model.optimizer is not None and len(start.theta):
        start.check_bounds(finite=model.n_restarts_optimizer > 0)
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
        model.callback,
        model.keep_on_interrupt,
        model.verbose,
        _sparse(model, kernel),
    )


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
    rows = model.coarse_rows
    if rows is not None and (isinstance(rows, bool) or not isinstance(rows, Integral) or rows < 1):
        raise ValueError(f"coarse_rows must be a positive integer or None, got {rows!r}.")
    coarse = None if rows is None else int(rows)
    if not (model.checkpoint is None or isinstance(model.checkpoint, str | os.PathLike)):
        raise ValueError(f"checkpoint must be a path or None, got {model.checkpoint!r}.")
    state = model.random_state
    seed = int(state) if isinstance(state, Integral) else None
    return SparsePlan(model.inducing, bool(model.learn_inducing), coarse, model.checkpoint, seed)


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
            f"inducing points need a kernel on rows of numbers, and {kernel} is on others."
        )


def _check_options(model: Parameters) -> None:
    check_tolerance(model.tol, model.max_iter_predict, "max_iter_predict")
    if not (model.optimizer is None or callable(model.optimizer) or model.optimizer in OPTIMIZERS):
        names = ", ".join(map(repr, OPTIMIZERS))
        raise ValueError(f"optimizer must be {names}, a callable or None, got {model.optimizer!r}.")
    restarts = model.n_restarts_optimizer
    if isinstance(restarts, bool) or not isinstance(restarts, Integral) or restarts < 0:
        raise ValueError(f"n_restarts_optimizer must be 0 or more, got {restarts!r}.")
    if not (model.callback is None or callable(model.callback)):
        raise ValueError(f"callback must be a function or None, got {model.callback!r}.")
    jobs = model.n_jobs
    if not (jobs is None or (isinstance(jobs, Integral) and not isinstance(jobs, bool) and jobs != 0)):
        raise ValueError(
            f"n_jobs must be None or an integer other than 0 (-1: all processors), got {jobs!r}."
        )
    if model.multi_class not in (*strategies.REGISTRY, "joint"):
        names = ", ".join(map(repr, (*strategies.REGISTRY, "joint")))
        raise ValueError(f"multi_class must be one of {names}, got {model.multi_class!r}.")


def check_inducing(inducing: Any) -> None:
    """Raise ``ValueError`` unless this is a number of points or an array of them."""
    is_number = isinstance(inducing, Integral) and not isinstance(inducing, bool)
    try:
        shape = np.shape(inducing)
    except ValueError:  # rows of different lengths
        shape = ()
    if not (inducing >= 1 if is_number else len(shape) == 2):
        shown = f"shape {shape}" if shape else repr(inducing)
        raise ValueError(
            "inducing must be None, a positive number of points or an array (points, features), got "
            f"{shown}."
        )
