"""The tables of the report: contestants down, problems across."""

from collections.abc import Callable
from math import exp

from plan import CONTESTANTS, PPL, Contestant, problems
from problems import REAL, Problem
from store import Store, middle

#: From a store, a contestant and a problem to what stands in the cell, None for nothing.
Cell = Callable[[Store, Contestant, Problem], str | None]


def table(header: list[str], rows: list[list[str]]) -> str:
    """Markdown."""
    lines = ["| " + " | ".join(cells) + " |" for cells in (header, ["---"] * len(header), *rows)]
    return "\n".join(lines)


def matrix(store: Store, cell: Cell, kind: str, split: bool = False) -> str:
    """A cell for every contestant and problem; rows and columns with nothing in them left out."""
    columns = [Problem(p.name, p.n, split and p.name in REAL) for p in problems(None)]
    rows = {}
    for contestant in CONTESTANTS:
        rows[contestant.name] = [_cell(store, cell, kind, contestant, p) for p in columns]
    used = [k for k in range(len(columns)) if any(row[k] for row in rows.values())]
    header = ["", *(f"{columns[k].name.replace('_', ' ')} {columns[k].n}" for k in used)]
    body = [[name, *(row[k] or "–" for k in used)] for name, row in rows.items() if any(row)]
    return table(header, body) if body else "Not measured."


def _cell(store: Store, cell: Cell, kind: str, contestant: Contestant, problem: Problem) -> str | None:
    if store.figures(contestant.name, kind, problem.key):
        return cell(store, contestant, problem)
    outcome = store.outcome(contestant.name, kind, problem.key)
    return outcome.split(":")[0] if outcome else None


def seconds(store: Store, name: str, problem: str, kind: str = "fit") -> float | None:
    """The median time of a fit."""
    figures = store.figures(name, kind, problem)
    return middle([middle(f["seconds"]) for f in figures])


def evaluation(store: Store, name: str, problem: str, place: str, which: str) -> float | None:
    """The median time of an evidence with gradient; ``which`` is cold or warm."""
    figures = store.figures(name, "evaluate", problem)
    return middle([middle(f[place][which]) for f in figures if f.get(place, {}).get(which)])


def shown(value: float | None) -> str | None:
    """Seconds with three digits."""
    if value is None:
        return None
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}" if value >= 1 else f"{value:.3f}"


def fit_time(kind: str) -> Cell:
    """Seconds of a fit and what PPL takes as a fraction of it."""

    def cell(store: Store, contestant: Contestant, problem: Problem) -> str | None:
        theirs = seconds(store, contestant.name, problem.key, kind)
        ours = seconds(store, PPL.name, problem.key, kind)
        ratio = f" ({ours / theirs:.2g})" if ours and contestant != PPL else ""
        return f"{shown(theirs)}{ratio}"

    return cell


def evaluation_time(place: str) -> Cell:
    """Cold and warm."""

    def cell(store: Store, contestant: Contestant, problem: Problem) -> str | None:
        cold = shown(evaluation(store, contestant.name, problem.key, place, "cold"))
        warm = shown(evaluation(store, contestant.name, problem.key, place, "warm"))
        return f"{cold}, {warm}" if warm else cold or "did not settle"

    return cell


def first(store: Store, contestant: Contestant, problem: Problem) -> dict:
    """The figures of the first repeat of a fit."""
    return store.figures(contestant.name, "fit", problem.key)[0]


def peak(store: Store, contestant: Contestant, problem: Problem) -> str:
    """Of a fit: MB, and n² doubles."""
    value = middle([f["peak"] for f in store.figures(contestant.name, "fit", problem.key)])
    return f"{value / 1e6:.0f} ({value / (8 * problem.n**2):.1f})"


def prediction(store: Store, contestant: Contestant, problem: Problem) -> str | None:
    """Seconds, and MB at the peak."""
    figures = store.figures(contestant.name, "fit", problem.key)
    peaks = middle([f["predict_peak"] for f in figures])
    return f"{shown(middle([f['predict'] for f in figures]))} ({peaks / 1e6:.0f})"


def evidence(store: Store, contestant: Contestant, problem: Problem) -> str:
    """In its own objective, and PPL's at the same θ."""
    own = f"{first(store, contestant, problem)['evidence']:.4f}"
    judged = store.figures(PPL.name, "evidence_at", problem.key)
    value = judged[0].get(contestant.name) if judged else None
    return own if value is None else f"{own} ({value:.4f})"


def optimum(store: Store, contestant: Contestant, problem: Problem) -> str:
    """σ² and ℓ, and how many evaluations or steps it took."""
    found = first(store, contestant, problem)
    count = f" in {found['evaluations']}" if found["evaluations"] else ""
    return f"{exp(found['theta'][0]):.4g}, {exp(found['theta'][1]):.3g}{count}"


def scores(store: Store, contestant: Contestant, problem: Problem) -> str | None:
    """Error and mean log loss on rows that were held out."""
    found = first(store, contestant, problem)
    return f"{found['error']:.3f}, {found['log_loss']:.3f}" if "error" in found else None
