"""Whether features on very different scales have ruined a fit.

Different scales alone are no fault: the feature that matters may be the one of large numbers. So the
evidence of some rows is computed with standardised features too.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from postlin._typing import Array
from postlin.estimator.parameters import Plan
from postlin.exceptions import NotPositiveDefiniteError
from postlin.learning.hyperparameters import Hyperparameters
from postlin.learning.models import ExactModel
from postlin.learning.progress import Progress, watching
from postlin.learning.starts import Guide, constant_evidence, spaced, spread
from postlin.learning.training import train
from postlin.linalg.threads import blas_threads
from postlin.schedules import Parallel

#: Features whose standard deviations differ by less than this factor are never looked at.
_RATIO = 10.0
#: The most rows that are compared, and the accuracy of inference then.
_ROWS, _TOL = 300, 1e-5
#: What standardised features must gain, in nats: in all and for each row. Where the feature that
#: matters is a thousand times smaller than another, they gain .3 for each row.
_GAIN, _EACH = 8.0, 0.05


def remark_on_scales(
    plan: Plan, at: Hyperparameters, rows: np.ndarray, positive: np.ndarray
) -> str | None:
    """A sentence if standardised features would do clearly better, with one length scale for all.

    ``rows`` are those of a binary problem, or some of them, and ``positive`` tells their labels.
    """
    scales = plan.deviations[plan.deviations > 0]
    groups = at.where("length_scale")
    one_for_all = bool(groups) and all(len(where) == 1 for where in groups)
    if plan.optimizer is None or len(scales) < 2 or not one_for_all or callable(plan.prior_mean):
        return None
    if scales.max() < _RATIO * scales.min():
        return None
    some = spaced(len(rows), _ROWS)
    X, y = np.asarray(rows[some], float), np.where(positive[some], 1.0, -1.0)
    each = spread(X, None)
    if len(np.unique(y)) < 2 or not (each > 0).any():
        return None
    standardised = (X - X.mean(axis=0)) / np.where(each > 0, each, 1.0)
    try:
        as_they_are, better = (_evidence(plan, at, features, y) for features in (X, standardised))
    except NotPositiveDefiniteError:
        return None
    if better - as_they_are < max(_GAIN, _EACH * len(y)):
        return None
    return (
        f"the features have standard deviations from {scales.min():.3g} to {scales.max():.3g} and the "
        f"kernel one length scale for all: on {len(y)} rows the log evidence is {as_they_are:.1f}, and "
        f"{better:.1f} with standardised features; put a StandardScaler in front of the classifier."
    )


def _evidence(plan: Plan, at: Hyperparameters, X: Array, y: Array) -> float:
    """The largest log evidence of these rows, from what was learned and from a natural length scale."""
    latent: dict[str, Any] = {"fold_noise": plan.fold_noise, "prior_mean": plan.prior_mean}
    model = ExactModel(X, y, plan.rule, Parallel(), _TOL, plan.max_iter, **latent)
    guide = Guide(at, X, spread(X, None), [constant_evidence(y, None)])
    found = []
    with blas_threads(len(y)), watching(Progress(is_shown=False)):
        for theta in (at.theta, *guide.looks[:1]):
            start = at.at(theta)
            trained = train(
                [model],
                start,
                "bfgs",
                rng=np.random.RandomState(0),
                starts=[None],
                guide=guide,
                look_around=False,
            )
            found.append(trained.best[0].log_evidence)
    return max(found)


def with_remark(plan: Plan, at: Hyperparameters, rows: np.ndarray, codes: np.ndarray) -> Plan:
    """The plan with the remark, if there is one, of the last or the most frequent class."""
    counts = np.bincount(codes)
    chosen = 1 if len(counts) == 2 else int(np.argmax(counts))
    remark = remark_on_scales(plan, at, rows, codes == chosen)
    return plan if remark is None else replace(plan, remarks=(*plan.remarks, remark))
