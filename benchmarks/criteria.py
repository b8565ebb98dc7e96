"""What issue 4 asks of postlin, each with what was measured, its target and whether it is met."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from plan import (
    GPBOOST,
    GPBOOST_LOGIT,
    GPY_PARALLEL,
    GPY_SEQUENTIAL,
    LAPLACE,
    OURS,
    PEERS,
    PPL,
    SEP,
    SKLEARN,
    Contestant,
)
from problems import SYNTHETIC
from store import Store, middle
from tables import evaluation, seconds, shown

CRAB, IONOSPHERE, CANCER, LARGE = "crab-200", "ionosphere-351", "breast_cancer-699", "synthetic-2000"
ALL = (CRAB, IONOSPHERE, CANCER, LARGE)
PLACES = ("start", "near optimum")


class Verdict(NamedTuple):
    """A line of the table; ``passed`` is None where something was not measured."""

    line: str
    what: str
    measured: str
    target: str
    passed: bool | None


def verdicts(store: Store) -> list[Verdict]:
    """All of them, in the order of the issue."""
    return [*_fits(store), *_same_objective(store), *_limit(store), *_growth(store)]


def _judged(verdict: Verdict, store: Store, *measurements: tuple[str, str, str]) -> Verdict:
    """Times taken on a busy machine prove nothing."""
    if any(store.disturbed(*m) for m in measurements):
        return verdict._replace(measured=f"{verdict.measured}, machine busy", passed=None)
    return verdict


def _ratio(
    store: Store, ours: Contestant, peers: list[Contestant], problem: str, kind: str
) -> tuple[str, float | None]:
    """Our time as a fraction of the fastest of the peers'; a peer that was ended took its limit."""
    mine = seconds(store, ours.name, problem, kind)
    times, ended = [], []
    for peer in peers:
        theirs = seconds(store, peer.name, problem, kind)
        outcome = store.outcome(peer.name, kind, problem) or ""
        if theirs is not None:
            times.append(theirs)
        elif outcome.startswith(">"):
            ended.append(float(outcome[1:-1]))
    if mine is None or not times + ended:
        return "not measured", None
    fastest = min(times + ended)
    sign = "" if fastest in times else "< "
    return f"{sign}{mine / fastest:.3f} ({shown(mine)} s / {shown(fastest)} s)", mine / fastest


def _against(
    store: Store, line: str, ours: Contestant, peers: list[Contestant], limits: dict[str, float]
) -> Iterator[Verdict]:
    """As asked, and (line with an asterisk) where every process is kept to one thread."""
    for kind, mark in (("fit", ""), ("fit-one-thread", "*")):
        for problem, target in limits.items():
            if mark and problem == LARGE:
                continue
            said, value = _ratio(store, ours, peers, problem, kind)
            names = " or ".join(p.name for p in peers)
            what = f"{ours.name} / {names}, {problem}" + (", one thread" if mark else "")
            passed = None if value is None else value <= target
            verdict = Verdict(line + mark, what, said, f"≤ {target:g}", passed)
            yield _judged(verdict, store, *((c.name, kind, problem) for c in (ours, *peers)))


def _fits(store: Store) -> Iterator[Verdict]:
    boost, gpy = [GPBOOST, GPBOOST_LOGIT], [GPY_PARALLEL, GPY_SEQUENTIAL]
    yield from _against(store, "1", PPL, [SKLEARN], dict.fromkeys(ALL, 0.25))
    yield from _against(store, "1", PPL, boost, {CRAB: 2.0, CANCER: 1.0, LARGE: 1.0})
    yield from _against(store, "1", PPL, gpy, dict.fromkeys((CRAB, IONOSPHERE), 0.05))
    for problem in ALL:
        yield _best(store, problem)
    for problem in ALL:
        yield _reproduced(store, problem)


def _best(store: Store, problem: str) -> Verdict:
    """PPL converged, and no θ that a peer found has a higher PPL evidence than its own."""
    what = f"PPL evidence at the best θ of a peer minus at its own, {problem}"
    fits = store.figures(PPL.name, "fit", problem)
    judged = store.figures(PPL.name, "evidence_at", problem)
    if not fits or not judged:
        return Verdict("1", what, "not measured", "≤ 1e-3, converged", None)
    others = {p.name: judged[0][p.name] for p in PEERS if p.name in judged[0]}
    if not others:
        return Verdict("1", what, "not measured", "≤ 1e-3, converged", None)
    best = max(others, key=lambda name: others[name])
    excess = others[best] - min(f["evidence"] for f in fits)
    converged = all(f["converged"] for f in fits)
    said = f"{excess:.1e} ({best}), {'converged' if converged else 'not converged'}"
    return Verdict("1", what, said, "≤ 1e-3, converged", converged and excess <= 1e-3)


def _reproduced(store: Store, problem: str) -> Verdict:
    """The θ that a fit reports must have the evidence that it reports: from a cold start it has."""
    what = f"evidence at the θ reported minus as reported, all of postlin's, {problem}"
    differences = {}
    for contestant in OURS:
        fits = store.figures(contestant.name, "fit", problem)
        judged = store.figures(contestant.name, "evidence_at", problem)
        if fits and judged and contestant.name in judged[0]:
            differences[contestant.name] = judged[0][contestant.name] - fits[0]["evidence"]
    if not differences:
        return Verdict("1", what, "not measured", "≤ 1e-6", None)
    worst = max(differences, key=lambda name: abs(differences[name]))
    passed = abs(differences[worst]) <= 1e-6
    return Verdict("1", what, f"{differences[worst]:+.1e} ({worst})", "≤ 1e-6", passed)


def _same_objective(store: Store) -> Iterator[Verdict]:
    yield from _against(store, "2", LAPLACE, [SKLEARN], dict.fromkeys(ALL, 0.2))
    yield from _against(store, "2", SEP, [GPY_SEQUENTIAL], dict.fromkeys((CRAB, IONOSPHERE), 0.05))
    for ours, peer, tolerance, problems in (
        (LAPLACE, SKLEARN, 1e-6, ALL),
        (SEP, GPY_SEQUENTIAL, 1e-4, (CRAB, IONOSPHERE)),
    ):
        for problem in problems:
            yield _same(store, ours, peer, tolerance, problem)


def _same(store: Store, ours: Contestant, peer: Contestant, tolerance: float, problem: str) -> Verdict:
    """Evidence at the same θ (two fixed ones and the peer's optimum), and at the two optima."""
    what = f"evidence, {ours.name} − {peer.name}, {problem}: same θ; optima"
    mine, theirs = (store.figures(c.name, "evaluate", problem) for c in (ours, peer))
    fits = [store.figures(c.name, "fit", problem) for c in (ours, peer)]
    judged = store.figures(ours.name, "evidence_at", problem)
    if not (mine and theirs and judged and all(fits)) or peer.name not in judged[0]:
        return Verdict("2", what, "not measured", f"{tolerance:g}", None)
    differences = [mine[0][place]["evidence"] - theirs[0][place]["evidence"] for place in PLACES]
    differences.append(judged[0][peer.name] - fits[1][0]["evidence"])
    worst = max(map(abs, differences))
    optima = fits[0][0]["evidence"] - fits[1][0]["evidence"]
    passed = worst <= tolerance and optima >= -tolerance
    return Verdict("2", what, f"{worst:.1e}; {optima:+.1e}", f"≤ {tolerance:g}; no lower", passed)


def _limit(store: Store) -> Iterator[Verdict]:
    found = store.figures(PPL.name, "limit", LARGE)
    for which, target in (("warm", 20), ("cold", 45)):
        for place in PLACES:
            what = f"evidence + gradient / dpotrf, n = 2000, {which}, θ {place}"
            if not found:
                yield Verdict("3", what, "not measured", f"≤ {target}", None)
                continue
            unit, time = middle(found[0]["dpotrf"]), middle(found[0][place][which])
            said = f"{time / unit:.1f} ({shown(time)} s / {shown(unit)} s)"
            verdict = Verdict("3", what, said, f"≤ {target}", time / unit <= target)
            yield _judged(verdict, store, (PPL.name, "limit", LARGE))


def exponent(points: list[tuple[int, float]]) -> float | None:
    """Of time against n, by least squares of the logarithms."""
    if len(points) < 2:
        return None
    n, time = np.log(np.array(points, float)).T
    return float(np.polyfit(n, time, 1)[0])


def _growth(store: Store) -> Iterator[Verdict]:
    sizes = [n for n in SYNTHETIC if n >= 1000]
    for place in PLACES:
        for which in ("cold", "warm"):
            times = [evaluation(store, PPL.name, f"synthetic-{n}", place, which) for n in sizes]
            known = [(n, t) for n, t in zip(sizes, times, strict=True) if t is not None]
            value = exponent(known) if len(known) == len(sizes) else None
            what = f"exponent of time against n, 1000 to 8000, PPL, {which}, θ {place}"
            passed = None if value is None else value <= 3.1
            said = "not measured" if value is None else f"{value:.2f}"
            measurements = ((PPL.name, "evaluate", f"synthetic-{n}") for n in sizes)
            yield _judged(Verdict("4", what, said, "≤ 3.1", passed), store, *measurements)
    for path, how in (("infer", "postlin.infer"), ("fit", "as in a fit, from the data")):
        what = f"peak above the Gram matrix, n = 8000, n² doubles, PPL, {how}"
        found = store.figures(PPL.name, f"memory-{path}", "synthetic-8000")
        if not found:
            yield Verdict("4", what, "not measured", "≤ 4", None)
            continue
        matrices = matrices_above(found[0]["peak"], path, 8000)
        yield Verdict("4", what, f"{matrices:.2f}", "≤ 4", matrices <= 4)


def matrices_above(peak: float, path: str, n: int) -> float:
    """A peak in matrices of n² doubles above the Gram matrix's own."""
    return peak / (8 * n**2) - (path == "fit")
