"""What a user must be told about an inference that did not go as it should."""

import numpy as np

from postlin.exceptions import ConvergenceWarning, NegativeSiteWarning
from postlin.fixed_point import Record
from postlin.rules import EP, Rule
from postlin.schedules import Schedule


def complaints(
    record: Record,
    rule: Rule,
    schedule: Schedule,
    tol: float,
    max_iter: int,
    option: str = "max_iter",
    *,
    can_sweep: bool,
) -> list[ConvergenceWarning | NegativeSiteWarning]:
    """Warnings, each with what to do about it; sweeps, where they can be made."""
    found: list[ConvergenceWarning | NegativeSiteWarning] = []
    if schedule.iterations is not None and record.n_iter < schedule.iterations:
        found.append(
            ConvergenceWarning(
                f"plain iteration broke down after {record.n_iter} of {schedule.iterations} "
                "iterations; the result is where it stood. Use a schedule without iterations=."
            )
        )
    if not record.converged and schedule.iterations is None:
        found.append(
            ConvergenceWarning(
                f"inference stopped after {record.n_factorisations} factorisations with residual "
                f"{record.residual:.2g}, above tol={tol:g}; the result is approximate. To remedy it, "
                f"{_remedy(record, rule, max_iter, option, can_sweep)}. Extreme kernel parameters are "
                "the usual cause."
            )
        )
    if isinstance(rule, EP) and record.overruled.any():
        rows = ", ".join(map(str, np.flatnonzero(record.overruled)[:5]))
        count = int(record.overruled.sum())
        found.append(
            NegativeSiteWarning(
                f"EP asked for negative precision at {count} sites (rows {rows}"
                f"{', …' if count > 5 else ''}), which negative_sites={rule.negative_sites!r} "
                'changed; "keep" is more accurate.'
            )
        )
    return found


def _remedy(record: Record, rule: Rule, max_iter: int, option: str, can_sweep: bool) -> str:
    if record.n_factorisations >= max_iter:
        return f"raise {option} (now {max_iter})"
    cures = ["use schedule='sequential'"] if can_sweep else []
    if isinstance(rule, EP):
        cures.append("use inference='pl', which has no such trouble")
    else:
        cures.append("add white noise to the covariance")
    return ", or ".join(cures)
