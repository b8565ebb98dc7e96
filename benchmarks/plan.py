"""Who runs on what: the contestants, the jobs, and the sizes above which one is not tried."""

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from problems import REAL, SYNTHETIC, Problem

HERE = Path(__file__).parent
ROOT = HERE.parent
MAIN, JAX = ".venv-bench", ".venv-bench-jax"
#: What keeps a process to one thread, for a second look at fits up to this size: there the threads
#: that libraries start by default can cost more than they gain.
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
ONE_THREAD_TO = 699
START = [2.302585092994046, 0.0]  # log 10, log 1


@dataclass(frozen=True)
class Contestant:
    """A library with options, and how far it is asked to go."""

    name: str
    module: str
    options: dict[str, str] = field(hash=False, default_factory=dict)
    fit_to: int = 2000
    evaluate_to: int = 0  # no evidence at fixed θ
    environment: str = MAIN

    @property
    def ours(self) -> bool:
        """Whether it is postlin's."""
        return self.module == "postlin_"

    def fingerprint(self) -> str:
        """Of the code that a measurement depends on, so that a stored one is not taken for a new."""
        common = ("child.py", "measures.py", "problems.py", "peers/base.py")
        files = [HERE / name for name in (*common, f"peers/{self.module}.py")]
        files += [HERE / f"requirements{'-bayesnewton' if self.environment == JAX else ''}.txt"]
        if self.ours:
            files += sorted((ROOT / "src" / "postlin").rglob("*.py"))
        content = b"".join(file.read_bytes() for file in files)
        return hashlib.sha256(content + repr(self.options).encode()).hexdigest()[:12]


def _ours(name: str, likelihood: str, inference: str, schedule: str, to: int) -> Contestant:
    options = {"likelihood": likelihood, "inference": inference, "schedule": schedule}
    return Contestant(name, "postlin_", options, evaluate_to=to)


PPL = _ours("PPL probit", "probit", "pl", "parallel", 8000)
SPL = _ours("SPL probit", "probit", "pl", "sequential", 2000)
LAPLACE = _ours("Laplace logit", "logit", "laplace", "parallel", 2000)
PEP = _ours("PEP probit", "probit", "ep", "parallel", 2000)
SEP = _ours("SEP probit", "probit", "ep", "sequential", 2000)
OURS = (PPL, SPL, LAPLACE, PEP, SEP)

SKLEARN = Contestant("scikit-learn Laplace logit", "sklearn_", {}, 2000, 2000)
GPBOOST = Contestant("GPBoost Laplace probit", "gpboost_", {"likelihood": "probit"}, 2000, 2000)
GPBOOST_LOGIT = Contestant("GPBoost Laplace logit", "gpboost_", {"likelihood": "logit"}, 2000, 2000)
GPY_PARALLEL = Contestant("GPy EP parallel", "gpy_", {"parallel": "yes", "mode": "nested"}, 351, 351)
GPY_SEQUENTIAL = Contestant("GPy EP sequential", "gpy_", {"parallel": "no", "mode": "nested"}, 351, 351)
GPY_DEFAULT = Contestant("GPy EP alternated", "gpy_", {"parallel": "no", "mode": "alternated"}, 699)
GPYTORCH = Contestant("GPyTorch variational probit", "gpytorch_", {}, 2000)
BAYESNEWTON = Contestant("BayesNewton PL probit", "bayesnewton_", {}, 699, 1000, JAX)
PEERS = (
    SKLEARN,
    GPBOOST,
    GPBOOST_LOGIT,
    GPY_PARALLEL,
    GPY_SEQUENTIAL,
    GPY_DEFAULT,
    GPYTORCH,
    BAYESNEWTON,
)
CONTESTANTS = (*OURS, *PEERS)
BY_NAME = {contestant.name: contestant for contestant in CONTESTANTS}


@dataclass(frozen=True)
class Job:
    """A measurement to make."""

    contestant: Contestant
    kind: str
    problem: Problem
    repeat: int
    extra: dict = field(hash=False, default_factory=dict)

    @property
    def key(self) -> list:
        """What it is known by in the store."""
        return [self.contestant.name, self.kind, self.problem.key, self.repeat]

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables of its process; else libraries have the threads they choose."""
        return ONE_THREAD if self.kind == "fit-one-thread" else {}

    def message(self, data: Path) -> dict:
        """What the process that measures is told."""
        thetas = {"start": START, "near optimum": self.problem.near_optimum}
        basic = {"kind": self.kind, "data": str(data), "thetas": thetas}
        contestant = asdict(self.contestant)
        return basic | {key: contestant[key] for key in ("module", "options")} | self.extra


def problems(sizes: list[int] | None) -> Iterator[Problem]:
    """The problems of these sizes; None means all."""
    every = [Problem(name, n) for name, n in REAL.items()]
    every += [Problem("synthetic", n) for n in SYNTHETIC]
    return (p for p in every if sizes is None or p.n in sizes)


def jobs(sizes: list[int] | None, repeats: int | None) -> Iterator[Job]:
    """All jobs but those that need the results of others, contestants taking turns."""
    wanted = list(problems(sizes))
    for repeat in range(repeats or 3):
        for problem in wanted:
            if repeat >= (repeats or default_repeats(problem)):
                continue
            yield from _round(problem, repeat)
    for problem in wanted:
        yield from _once(problem)


def default_repeats(problem: Problem) -> int:
    """More where ratios are asked for."""
    return 3 if problem.name in REAL or problem.n == 2000 else 1


def _round(problem: Problem, repeat: int) -> Iterator[Job]:
    for contestant in CONTESTANTS:
        if problem.n <= contestant.fit_to:
            yield Job(contestant, "fit", problem, repeat)
    if repeat > 0:
        return
    for contestant in CONTESTANTS:
        if problem.n <= min(contestant.fit_to, ONE_THREAD_TO):
            yield Job(contestant, "fit-one-thread", problem, repeat, {"predict": False})
    for contestant in CONTESTANTS:
        if problem.n <= contestant.evaluate_to:
            yield Job(contestant, "evaluate", problem, repeat)


def _once(problem: Problem) -> Iterator[Job]:
    if problem.name in REAL:
        split = Problem(problem.name, problem.n, split=True)
        for contestant in CONTESTANTS:
            if problem.n <= contestant.fit_to:
                yield Job(contestant, "fit", split, 0, {"predict": False})
    if problem.key == "synthetic-2000":
        yield Job(PPL, "limit", problem, 0, {"rounds": 5})
    if problem.key in ("synthetic-4000", "synthetic-8000"):
        for contestant in OURS if problem.n == 4000 else (PPL,):
            for path in ("infer", "fit"):
                yield Job(contestant, f"memory-{path}", problem, 0, {"path": path})


def cross_jobs(fits: dict[str, dict[str, list[float]]]) -> Iterator[Job]:
    """Our evidence at the optima that others found, and at our own: {problem key: {contestant: θ}}."""
    peers = {PPL: list(BY_NAME), LAPLACE: [SKLEARN.name], SEP: [GPY_SEQUENTIAL.name]}
    for key, optima in fits.items():
        name, n = key.rsplit("-", 1)
        for judge in OURS:
            names = [judge.name, *peers.get(judge, [])]
            thetas = {peer: optima[peer] for peer in names if peer in optima}
            if thetas:
                yield Job(judge, "evidence_at", Problem(name, int(n)), 0, {"thetas": thetas})
