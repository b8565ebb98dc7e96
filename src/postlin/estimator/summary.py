"""A summary of a fit in a few lines, as text and as HTML for notebooks."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np
from sklearn.utils import estimator_html_repr

from postlin.estimator.diagnostics import HardRow
from postlin.estimator.fits import Fit
from postlin.kernels import kernels_of

if TYPE_CHECKING:
    from postlin.estimator.findings import Findings

#: A summary makes leave-one-out predictions for at most so many rows, summed over the problems.
_FEW_ROWS = 500
#: A summary shows at most so many problems, and as many kernels of a problem.
_SHOWN = 12

_STYLE = (
    "<style>.postlin-summary{font-family:system-ui,sans-serif;font-size:13px;margin-top:.6em}"
    ".postlin-summary table{border-collapse:collapse;margin:.3em 0}"
    ".postlin-summary td,.postlin-summary th{padding:.15em .8em .15em 0;text-align:left;"
    "border-bottom:1px solid #8884;font-variant-numeric:tabular-nums;white-space:pre-line}"
    ".postlin-summary caption{text-align:left;font-weight:600;padding:.3em 0}</style>"
)


def _facts(model: "Findings") -> list[tuple[str, str]]:
    """Names and values of what describes the whole fit."""
    fits = model._estimators
    first = fits[0]
    labels = ", ".join(map(str, model.classes_[:6])) + (", …" if model.n_classes_ > 6 else "")
    kinds = [first.model.rule.name, first.likelihood_.name, first.kind]
    kinds += ["white noise in the likelihood"] if getattr(first.model, "fold_noise", False) else []
    kinds += ["all classes jointly"] if model._decomposition.name == "joint" else []
    method = ", ".join(kind.replace("_", " ") for kind in kinds)
    mean = "mean " if len(fits) > 1 else ""
    if mean:
        method += f"; {model._decomposition.name.replace('_', ' ')}, {len(fits)} problems"
    facts = [
        ("data", f"{model._n_rows} rows, {model.n_classes_} classes ({labels})"),
        ("method", method),
        (f"{mean}{first.criterion}", f"{model.log_marginal_likelihood_value_:.4f}"),
    ]
    few = sum(fit.n_rows for fit in fits) <= _FEW_ROWS
    if few or getattr(first.model, "corrected", False):
        facts += _correction(model)
    if all(fit._loo is not None or (few and fit.method == "exact") for fit in fits):
        _, codes, weight = model._rows()
        error = np.average(np.argmax(model.loo_predict_proba_, axis=1) != codes, weights=weight)
        source = "" if model.converged_ else " (from the cavities)"
        facts.append(("leave-one-out log score", f"{model.loo_log_score_:.4f}{source}"))
        facts.append(("leave-one-out error", f"{error:.4f}{source}"))
    if any(fit.constant for fit in fits):
        which = "" if len(fits) == 1 else ", ".join(fit.name for fit in fits if fit.constant) + ": "
        facts.append(("signal", f"{which}none found, all new rows have nearly the same probability"))
    return [*facts, ("inference", "converged" if model.converged_ else "NOT CONVERGED")]


def _correction(model: "Findings") -> list[tuple[str, str]]:
    """What the log evidence misses to second order, in the problem that misses most; [] if unknown."""
    fits = model._estimators
    try:
        found = max((fit.correction for fit in fits), key=abs)
    except AttributeError:
        return []
    doubt = ""
    wrong = [fit for fit in fits if not fit.is_correction_trustworthy]
    far = [fit for fit in fits if not fit.is_trustworthy]
    if wrong or far:
        of = f" of {', '.join(fit.name for fit in (wrong or far)[:_SHOWN])}" if len(fits) > 1 else ""
        doubt = f"; do not trust the approximation{of}{'' if wrong else ' without it'}"
    return [("largest correction" if len(fits) > 1 else "correction", f"{found:+.4f}{doubt}")]


def _kernel(model: "Findings", fit: Fit) -> str:
    """The learned kernel and likelihood parameters; a line for each class with its own kernel."""
    parts = kernels_of(fit.kernel_)
    if len(parts) == 1:
        free = (f", {name} = {getattr(fit.likelihood_, name):.3g}" for name in fit.likelihood_.free)
        return f"{parts[0]}{''.join(free)}"
    lines = [f"{label}: {part}" for label, part in zip(model.classes_, parts, strict=True)]
    more = [f"and {len(lines) - _SHOWN} kernels more"] if len(lines) > _SHOWN else []
    return "\n".join(lines[:_SHOWN] + more)


def _problems(model: "Findings") -> tuple[list[tuple[str, str, str, str]], str]:
    """Name, kernel, log evidence and state of the problems that are shown, and a word on the rest."""
    rows = [
        (
            fit.name,
            _kernel(model, fit),
            f"{fit.log_marginal_likelihood_value_:.4f}",
            f"{'yes' if fit.record.converged else 'NO'}, {fit.effort}",
        )
        for fit in model._estimators[:_SHOWN]
    ]
    rest = len(model._estimators) - _SHOWN
    return rows, f"and {rest} problems more" if rest > 0 else ""


def _hard(model: "Findings") -> list[HardRow]:
    """The rows of lowest leave-one-out probability, if there is one problem with its rows in memory."""
    found = model.diagnostics_
    if isinstance(found, list) or found.fit.method != "exact":
        return []
    return found.hard_rows(5)


def as_text(model: "Findings") -> str:
    """The summary for a terminal."""
    facts = _facts(model)
    width = max(len(name) for name, _ in facts)
    lines = [type(model).__name__, *(f"  {name:{width}}  {value}" for name, value in facts)]
    problems, rest = _problems(model)
    for name, kernel, evidence, state in problems:
        lines += [f"  {name}", *(f"    {line}" for line in kernel.splitlines())]
        lines.append(f"    {model._estimators[0].criterion} {evidence}; converged: {state}")
    if rest:
        lines.append(f"  {rest}")
    hard = _hard(model)
    if hard:
        lines.append("  hardest rows (probability of their label without them, from the cavities)")
        lines += [f"    row {row.row}: {row.loo_probability:.4f}" for row in hard]
    return "\n".join(lines)


def as_html(model: "Findings") -> str:
    """scikit-learn's diagram, with tables below it if the model is fitted."""
    diagram: str = estimator_html_repr(model)
    if not hasattr(model, "base_estimator_"):
        return diagram
    problems, rest = _problems(model)
    head = ("problem", "kernel", model._estimators[0].criterion, "converged")
    parts = [_table("", (), _facts(model)), _table("Hyperparameters", head, problems)]
    if rest:
        parts.append(f"<p>{rest}</p>")
    hard = [(row.row, f"{row.loo_probability:.4f}", f"{row.pull:.3g}") for row in _hard(model)]
    if hard:
        columns = ("row", "probability of its label without it, from the cavity", "pull")
        parts.append(_table("Hardest rows", columns, hard))
    return f'{diagram}{_STYLE}<div class="postlin-summary">{"".join(parts)}</div>'


def _table(caption: str, head: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    def line(cells: Iterable[object], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"

    body = "".join(line(row, "td") for row in rows)
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{title}{line(head, 'th') if head else ''}{body}</table>"
