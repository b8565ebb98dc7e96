"""What must hold for every fit of the campaign; an invariant yields a sentence for each violation."""

import pickle
import tempfile
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import campaign_reference as reference
import numpy as np
from campaign_problems import Problem

import postlin
from postlin import Sites
from postlin.estimator.fits import ExactFit

#: Parts of the warnings that cast doubt on inference, and not only on the hyperparameters.
DOUBTS = (
    "inference stopped after",
    "iteration broke down",
    "negative precision",
    "rounding leaves",
    "fixed point",
)
#: The steps of difference quotients, each of which is tried where the evidence is rough at the last.
STEPS = (1e-3, 1e-5, 1e-7, 1e-9)


@dataclass
class Outcome:
    """What became of one problem."""

    problem: Problem
    model: object = None
    refusal: str | None = None
    messages: list[str] = field(default_factory=list)  # the warnings of ``fit``
    violations: list[tuple[str, str]] = field(default_factory=list)  # (invariant, what)
    seconds: float = 0.0

    @property
    def flagged(self):
        """Whether the fit told that its inference has not converged or depends on a policy."""
        return any(part in text for text in self.messages for part in DOUBTS)

    @property
    def sound(self):
        """Whether inference claims to have converged, without a word of doubt."""
        plain = getattr(self.problem.options["schedule"], "iterations", None) is not None
        return self.model.converged_ and not self.flagged and not plain


def finite(outcome):
    """Everything is finite, variances are not negative, and the evidence is that of labels."""
    model, new = outcome.model, outcome.problem.new
    mean, variance = model.latent_mean_and_variance(new)
    for name, part in (("mean", mean), ("variance", variance)):
        if not np.isfinite(part).all():
            yield f"latent {name} is not finite"
    if (np.asarray(variance) < 0).any() and model._estimators[0].__class__.__name__ != "JointFit":
        yield f"latent variance {np.min(variance):.3g} is negative"
    value = model.log_marginal_likelihood_value_
    if not np.isfinite(value):
        yield f"log evidence is {value}"
    elif value > 1e-6 and outcome.sound:
        yield f"log evidence {value:.6g} of labels is above zero"


def probabilities(outcome):
    """Probabilities lie in [0, 1], sum to one, and are those of a row alone."""
    model, new = outcome.model, outcome.problem.new
    p = model.predict_proba(new)
    if not (np.isfinite(p).all() and (p >= 0).all() and (p <= 1).all()):
        yield "probabilities are not in [0, 1]"
    if not np.abs(p.sum(axis=1) - 1).max() < 1e-9:
        yield f"probabilities sum to 1 + {np.abs(p.sum(axis=1) - 1).max():.2g}"
    alone = np.concatenate([model.predict_proba(row[None]) for row in new])
    if not np.abs(p - alone).max() < 1e-6:
        yield f"a row's probabilities depend on its batch, by {np.abs(p - alone).max():.2g}"


def prediction(outcome):
    """The predicted label is the most probable one."""
    model, new = outcome.model, outcome.problem.new
    p = model.predict_proba(new)
    codes = np.searchsorted(model.classes_, model.predict(new))
    behind = p.max(axis=1) - p[np.arange(len(p)), codes]
    if not behind.max() < 1e-9:
        yield f"predict is not the argmax of predict_proba, by {behind.max():.2g}"


def summary(outcome):
    """The summary and the leave-one-out probabilities can be computed."""
    model = outcome.model
    if not model.summary():
        yield "the summary is empty"
    if outcome.problem.options.get("inducing") is None:
        loo = model.loo_predict_proba_
        if not (np.isfinite(loo).all() and np.abs(loo.sum(axis=1) - 1).max() < 1e-9):
            yield "leave-one-out probabilities are not probabilities"


def permutation(outcome):
    """Inference at the learned hyperparameters does not depend on the order of the rows."""
    problem = outcome.problem
    if not outcome.sound:
        return
    order = np.random.default_rng(problem.seed).permutation(len(problem.y))
    weight = None if problem.weight is None else problem.weight[order]
    yield from _same_at_learned(outcome, problem.X[order], problem.y[order], weight, "permuting")


def repetition(outcome):
    """Rows of integer weight w are w rows."""
    problem = outcome.problem
    weight = problem.weight
    whole = weight is not None and (weight == np.round(weight)).all() and weight.sum() < 90
    if not (outcome.sound and whole) or "class_weight" in problem.options:
        return
    rows = np.repeat(np.arange(len(weight)), weight.astype(int))
    yield from _same_at_learned(outcome, problem.X[rows], problem.y[rows], None, "repeating")


def _learned(outcome):
    """The parameters of a classifier that makes inference at the learned values; None if none does."""
    model, options = outcome.model, outcome.problem.options
    first = model._estimators[0]
    if len({str(fit.hyperparameters.theta) for fit in model._estimators}) > 1:
        return None  # problems with values of their own
    if hasattr(first.kernel_, "kernels"):
        return None  # classes with kernels of their own
    changes = {"optimizer": None, "kernel": first.kernel_}
    if first.likelihood_.name != "softmax":
        changes["likelihood"] = first.likelihood_
    if "inducing" in options:
        changes |= {"inducing": first.inducing_points_, "learn_inducing": False}
    return changes


def _same_at_learned(outcome, X, y, weight, doing):
    """Inference on these rows at the learned hyperparameters predicts what the fit predicts."""
    problem, model = outcome.problem, outcome.model
    changes = _learned(outcome)
    if changes is None:
        return
    other = problem.classifier(**changes).fit(X, y, weight)
    if not other.converged_:
        return  # which it says: without the search's path to the solution it begins far away
    apart = np.abs(other.predict_proba(problem.new) - model.predict_proba(problem.new)).max()
    ours, theirs = (m.log_marginal_likelihood_value_ for m in (model, other))
    if not apart < 1e-5:
        yield f"{doing} rows changes probabilities by {apart:.2g}"
    if not abs(ours - theirs) < 1e-4 * max(1.0, abs(ours)):
        yield f"{doing} rows changes the log evidence from {ours:.8g} to {theirs:.8g}"


def storage(outcome):
    """A model that was saved and loaded, or pickled where a file cannot hold it, predicts the same."""
    model, new = outcome.model, outcome.problem.new
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        try:
            postlin.save(model, path)
            copy = postlin.load(path)
        except postlin.ModelFileError as error:
            if "pickle it" not in str(error):
                raise
            copy = pickle.loads(pickle.dumps(model))
    apart = np.abs(copy.predict_proba(new) - model.predict_proba(new)).max()
    if not apart < 1e-7:
        yield f"loading changes probabilities by {apart:.2g}"


def gradient(outcome):
    """The gradient of the evidence is its difference quotient along a random direction.

    Steps become finer until the evidence is smooth between them: a periodic kernel whose period is a
    millionth of the data's extent has an evidence that oscillates with the period.
    """
    problem, model = outcome.problem, outcome.model
    fit = model._estimators[0]
    theta = fit.hyperparameters.theta
    if not (outcome.sound and len(theta)) or problem.options.get("learn_inducing"):
        return
    direction = np.random.default_rng(problem.seed).normal(size=len(theta))
    direction /= np.linalg.norm(direction)
    _, slopes = fit.log_marginal_likelihood(theta, eval_gradient=True)
    if not np.isfinite(slopes).all():
        yield "the gradient is not finite"
        return
    ours = float(slopes @ direction)
    tolerance = 1e-6 if "inducing" in problem.options else 1e-9  # of inference, and so of the values
    for step in STEPS:
        values = _values_along(fit, theta, step * direction)
        if values is None:
            return  # there is no fixed point to compare with
        fine, coarse = _difference_quotients(values, step)
        noise = tolerance * max(1.0, abs(values[1])) / step
        # a gradient that is too large must not make a rough evidence look smooth
        if abs(fine - coarse) <= 3e-4 * max(0.1, abs(fine)):
            if not abs(ours - fine) < 2e-3 * max(0.1, abs(ours), abs(fine)) + noise:
                yield f"gradient {ours:.6g}, difference quotient {fine:.6g}"
            return
    # the evidence is not smooth, or its rounding errors are too large


def _values_along(fit, theta, step):
    """The log evidences {k: at theta + k step} about theta; None if inference warns at one of them."""
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        values = {k: fit.log_marginal_likelihood(theta + k * step) for k in (-4, -2, -1, 1, 2, 4)}
    return None if record else values


def _difference_quotients(values, step):
    """The slope to fourth order from values one and two steps away, and from two and four."""
    first, second, fourth = ((values[k] - values[-k]) / (2 * k * step) for k in (1, 2, 4))
    return (4 * first - second) / 3, (4 * second - fourth) / 3


def fixed_point(outcome):
    """The sites solve the rule's equation and make the evidence, in algebra of our own."""
    for fit in outcome.model._estimators:
        if isinstance(fit, ExactFit) and outcome.sound:
            yield from _residual(fit)


def _residual(fit):
    found = fit.approximation_
    problem, rule = found.problem, found.problem.rule
    likelihood, name = problem.likelihood, rule.name
    known = likelihood.name in ("probit", "logit") or name != "laplace"
    if not known or problem.weights.noise > 0 or found.record.overruled.any():
        return
    weight = getattr(problem.weights, "weight", np.ones(len(problem.y)))
    copies = np.maximum(weight, 1.0)
    K, (tau, nu) = np.asarray(problem.K), found.sites

    def compare(exactly):
        solved = reference.posterior(K, tau, nu, exactly=exactly)
        mean, variance, _ = solved
        with np.errstate(all="ignore"):
            new_tau, new_nu = reference.proposed(
                name, likelihood, problem.y, mean, variance, tau, nu, copies
            )
            moves = weight * new_tau - tau, weight * new_nu - nu
            size = np.maximum(
                np.abs(moves[0]) * variance,
                np.abs(moves[1] - mean * moves[0]) * np.sqrt(np.abs(variance)),
            ).max()
            value = found.log_evidence
            if rule.evidence_order is None and (weight >= 1).all():
                value = reference.log_evidence(name, likelihood, problem.y, weight, (tau, nu), solved)
        return size, value

    size, value = compare(exactly=False)
    allowed = 1e-5 * max(1.0, abs(found.log_evidence))
    if not (size < 1e-5 and abs(value - found.log_evidence) < allowed) and len(tau) <= reference.FEW:
        size, value = compare(exactly=True)
    elif len(tau) > reference.FEW and not size < 1e-5:
        return  # double precision is not enough, and more takes too long
    if not size < 1e-4:
        yield f"converged, but the residual is {size:.2g} instead of {found.residual:.2g}"
    if not abs(value - found.log_evidence) < 10 * allowed:
        yield f"log evidence {found.log_evidence:.8g}, recomputed {value:.8g}"


def other_start(outcome):
    """Inference from other sites converges to the same evidence; from nothing to no better one.

    Fixed points of CL need not be unique: a fit keeps the better of two.
    """
    rng = np.random.default_rng(outcome.problem.seed)
    for fit in outcome.model._estimators:
        if not (isinstance(fit, ExactFit) and outcome.sound):
            continue
        tau, nu = fit.approximation_.sites
        factor = np.exp(0.5 * rng.normal(size=len(tau)))
        elsewhere = Sites(tau * factor, nu * factor + 0.3 * rng.normal(size=len(nu)) * np.abs(nu))
        for name, start in (("perturbed sites", elsewhere), ("nothing", None)):
            found = fit.model.infer(fit.hyperparameters, start)
            ours, theirs = fit.log_marginal_likelihood_value_, found.log_evidence
            if not fit.model.rule.is_unique and (start is not None or theirs < ours):
                continue
            if found.converged and abs(ours - theirs) > 1e-4 * max(1.0, abs(ours)):
                yield f"from {name} the log evidence is {theirs:.8g} instead of {ours:.8g}"


def flags(outcome):
    """A fit that has not converged says so."""
    plain = getattr(outcome.problem.options["schedule"], "iterations", None) is not None
    if not outcome.model.converged_ and not outcome.flagged and not plain:
        yield "not converged, and not a word"


INVARIANTS = (
    finite,
    probabilities,
    prediction,
    summary,
    permutation,
    repetition,
    storage,
    gradient,
    fixed_point,
    other_start,
    flags,
)
