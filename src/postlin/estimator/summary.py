"""A fit in a few lines, as text and as HTML for notebooks."""

from html import escape
from typing import Any

import numpy as np
from sklearn.utils import estimator_html_repr

from postlin.estimator.diagnostics import Diagnostics, HardRow
from postlin.kernels import kernels_of

#: Rows, over all problems, up to which leave-one-out predictions are made for a summary.
_FEW_ROWS = 500
#: Problems shown one by one; of more only the first.
_SHOWN = 12

_STYLE = (
    "<style>.postlin-summary{font-family:system-ui,sans-serif;font-size:13px;margin-top:.6em}"
    ".postlin-summary table{border-collapse:collapse;margin:.3em 0}"
    ".postlin-summary td,.postlin-summary th{padding:.15em .8em .15em 0;text-align:left;"
    "border-bottom:1px solid #8884;font-variant-numeric:tabular-nums;white-space:pre-line}"
    ".postlin-summary caption{text-align:left;font-weight:600;padding:.3em 0}</style>"
)


def _facts(model: Any) -> list[tuple[str, str]]:
    """What is true of the whole fit."""
    fits = model._estimators
    labels = ", ".join(str(label) for label in model.classes_[:6])
    more = ", …" if model.n_classes_ > 6 else ""
    counts = f"{model._n_rows} rows, {model.n_classes_} classes ({labels}{more})"
    first = fits[0].model
    schedule = [] if fits[0].takes_passes else [first.schedule.name]
    kinds = [first.rule.name, fits[0].likelihood_.name, *schedule]
    remark = [fits[0].remark] if fits[0].remark else []
    method = ", ".join([kind.replace("_", " ") for kind in kinds] + remark)
    if len(fits) > 1:
        method += f"; {model._decomposition.name.replace('_', ' ')}, {len(fits)} problems"
    evidence = "log evidence" if len(fits) == 1 else "mean log evidence"
    return [
        ("data", counts),
        ("method", method),
        (evidence, f"{model.log_marginal_likelihood_value_:.4f}"),
        *(_left_out(model) if _is_cheap(fits) else []),
        ("inference", "converged" if model.converged_ else "NOT CONVERGED"),
    ]


def _is_cheap(fits: Any) -> bool:
    """Whether leave-one-out predictions are there already, or take no time."""
    few = sum(fit.n_rows for fit in fits) <= _FEW_ROWS
    return all(fit.has_left_out or (few and not fit.takes_passes) for fit in fits)


def _left_out(model: Any) -> list[tuple[str, str]]:
    return [
        ("leave-one-out log score", f"{model.loo_log_score_:.4f}"),
        ("leave-one-out error", f"{_loo_error(model):.4f}"),
    ]


def _loo_error(model: Any) -> float:
    wrong = np.argmax(model.loo_predict_proba_, axis=1) != model._codes
    return float(np.average(wrong, weights=model._weight))


def _kernel(model: Any, fit: Any) -> str:
    """What was learned; where every class has a kernel of its own, a line for each."""
    parts = kernels_of(fit.kernel_)
    if len(parts) == 1:
        free = (f", {name} = {getattr(fit.likelihood_, name):.3g}" for name in fit.likelihood_.free)
        return f"{parts[0]}{''.join(free)}"
    lines = [f"{label}: {part}" for label, part in zip(model.classes_, parts, strict=True)]
    more = [f"and {len(lines) - _SHOWN} kernels more"] if len(lines) > _SHOWN else []
    return "\n".join(lines[:_SHOWN] + more)


def _problems(model: Any) -> list[tuple[str, str, str, str]]:
    """Name, kernel, log evidence and state of each problem."""
    found = model.diagnostics_
    rows = []
    for d in found if isinstance(found, list) else [found]:
        state = f"{'yes' if d.converged else 'NO'}, {d.fit.effort}"
        evidence = f"{d.fit.log_marginal_likelihood_value_:.4f}"
        rows.append((d.fit.name, _kernel(model, d.fit), evidence, state))
    return rows


def _hard(model: Any) -> list[HardRow]:
    """The rows of lowest leave-one-out probability, with two classes."""
    found = model.diagnostics_
    at_hand = isinstance(found, Diagnostics) and not found.fit.takes_passes
    return found.hard_rows(5) if at_hand else []


def as_text(model: Any) -> str:
    """Lines for a terminal."""
    facts = _facts(model)
    width = max(len(name) for name, _ in facts)
    lines = [type(model).__name__, *(f"  {name:{width}}  {value}" for name, value in facts)]
    problems = _problems(model)
    for name, kernel, evidence, state in problems[:_SHOWN]:
        lines += [f"  {name}", *(f"    {line}" for line in kernel.splitlines())]
        lines.append(f"    log evidence {evidence}; converged: {state}")
    if len(problems) > _SHOWN:
        lines.append(f"  and {len(problems) - _SHOWN} problems more")
    hard = _hard(model)
    if hard:
        lines.append("  hardest rows (probability of their label without them, from the cavities)")
        lines += [f"    row {row.row}: {row.loo_probability:.4f}" for row in hard]
    return "\n".join(lines)


def as_html(model: Any) -> str:
    """scikit-learn's diagram, and tables below it where the model is fitted."""
    diagram: str = estimator_html_repr(model)
    if not hasattr(model, "base_estimator_"):
        return diagram
    parts = [_table("", (), _facts(model))]
    head = ("problem", "kernel", "log evidence", "converged")
    problems = _problems(model)
    rest = len(problems) - _SHOWN
    parts.append(_table("Hyperparameters", head, problems[:_SHOWN]))
    if rest > 0:
        parts.append(f"<p>and {rest} problems more</p>")
    hard = [(row.row, f"{row.loo_probability:.4f}", f"{row.pull:.3g}") for row in _hard(model)]
    if hard:
        parts.append(
            _table(
                "Hardest rows",
                ("row", "probability of its label without it, from the cavity", "pull"),
                hard,
            )
        )
    return f'{diagram}{_STYLE}<div class="postlin-summary">{"".join(parts)}</div>'


def _table(caption: str, head: tuple[str, ...], rows: list[Any]) -> str:
    def line(cells: Any, tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"

    body = "".join(line(row, "td") for row in rows)
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{title}{line(head, 'th') if head else ''}{body}</table>"
