"""How good default fits are on real data: against restarts, and against another version.

    python benchmarks/defaults.py                          # a few CPU minutes
    python benchmarks/defaults.py --restarts 10 --only urine,dna,splice,attrition,promotergene
    python benchmarks/defaults.py --against ../old/src     # CPU times in turns with another version

Every data set of ``real.py`` is split at random, seven tenths of the rows to train on, with features
standardised by these. ``GPClassifier`` is fitted with its default kernel and search, and with random
restarts too. A fit *falls short* if its evidence is more than 0.1 below the best that was found, and is
*silent* if it gives no warning then. With ``--against`` the default fits of the two versions alternate,
each in a process of its own, and which comes first alternates too.
"""

import argparse
import json
import sys
import time
import warnings
from itertools import product
from pathlib import Path

import numpy as np
import real
from turns import Version

HERE = Path(__file__).parent
METHODS = {"PL": ("pl", "probit"), "EP": ("ep", "probit"), "Laplace": ("laplace", "logit")}
#: A search that ends so many nats below the best found falls short; below the second, badly.
SHORT, BADLY = 0.1, 1.0
#: Probabilities within this of the share of the classes say nothing.
NOTHING = 1e-3


def serve() -> None:
    """Answer jobs on standard input, each a line of JSON, with the figures of a fit or its error."""
    for line in sys.stdin:
        try:
            answer = fit(**json.loads(line))
        except Exception as error:  # whatever a version raises is a finding, and the others go on
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


def fit(name: str, split: int, method: str, restarts: int) -> dict:
    """The figures of one fit by the version of postlin that Python finds."""
    from postlin import GPClassifier

    X, y, *_ = real.load(name)
    train, test = real.splits(y, split + 1)[split]
    rows, new = real.standardised(X[train], X[test])
    inference, likelihood = METHODS[method]
    model = GPClassifier(
        inference=inference, likelihood=likelihood, n_restarts_optimizer=restarts, random_state=0
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        began = time.process_time()
        model.fit(rows, y[train])
        seconds = time.process_time() - began
    p = model.predict_proba(new)[:, 1]
    return {
        "evidence": model.log_marginal_likelihood_value_,
        "log_loss": -float(np.mean(np.log(np.where(y[test] > 0, p, 1 - p)))),
        "cpu": seconds,
        "evaluations": len(model.evidence_path_),
        "says_nothing": bool(np.ptp(p) < NOTHING),
        "kernel": str(model.kernel_),
        "warnings": [f"{w.category.__name__}: {w.message}" for w in caught],
    }


def record(this: Version, other: Version | None, job: dict, restarts: int, turn: int) -> dict | None:
    """A default fit, one with restarts, and the default fit of the other version before or after.

    None, with a line that says why, if one of them raises an error.
    """
    versions = {"default": this} if other is None else {"default": this, "other": other}
    found = dict(job)
    for key in sorted(versions, reverse=bool(turn % 2)):
        found[key] = json.loads(versions[key].answer(json.dumps(job | {"restarts": 0})))
    found["restarts"] = json.loads(this.answer(json.dumps(job | {"restarts": restarts})))
    for key in (*versions, "restarts"):
        if "error" in found[key]:
            print(
                f"{job['name']:14s}{job['method']:9s}split {job['split']}, {key}: {found[key]['error']}"
            )
            return None
    found["best"] = max(found[key]["evidence"] for key in ("default", "restarts"))
    found["gap"] = found["best"] - found["default"]["evidence"]
    return found


def measured(arguments: argparse.Namespace) -> list[dict]:
    """A record for each data set, method and split; a line is printed for each set and method."""
    program = (str(Path(__file__).resolve()), "--serve")
    this = Version(arguments.source, program)
    other = Version(arguments.against, program) if arguments.against else None
    names = arguments.only.split(",") if arguments.only else real.names()
    methods = arguments.methods.split(",")
    for version in filter(None, (this, other)):  # the first fit of a process warms it up
        version.answer(json.dumps({"name": names[0], "split": 0, "method": methods[0], "restarts": 0}))
    print(HEAD)
    records: list[dict] = []
    tried = 0
    for name, method in product(names, methods):
        group = []
        for split in range(arguments.splits):
            job = {"name": name, "split": split, "method": method}
            group.append(record(this, other, job, arguments.restarts, tried))
            tried += 1
        if group := [r for r in group if r is not None]:
            print(line(group), flush=True)
        records += group
    print(f"\n{tried - len(records)} of {tried} raised an error and are left out below.")
    for version in filter(None, (this, other)):
        version.end()
    return records


HEAD = (
    f"{'set':14s}{'method':9s}{'evidence':>10s}{'below best':>11s}{'log-loss':>10s}{'restarts':>10s}"
    f"{'CPU':>8s}{'evaluations':>12s}"
)


def line(group: list[dict]) -> str:
    """The means over the splits of a set and a method, its largest gap, and what was seen."""
    mean = {key: np.mean([r["default"][key] for r in group]) for key in ("evidence", "log_loss", "cpu")}
    best = np.mean([r["restarts"]["log_loss"] for r in group])
    evaluations = np.mean([r["default"]["evaluations"] for r in group])
    text = (
        f"{group[0]['name']:14s}{group[0]['method']:9s}{mean['evidence']:10.2f}"
        f"{max(r['gap'] for r in group):11.3f}{mean['log_loss']:10.4f}{best:10.4f}{mean['cpu']:8.3f}"
        f"{evaluations:12.1f}"
    )
    if "other" in group[0]:
        gained = np.mean([r["default"]["evidence"] - r["other"]["evidence"] for r in group])
        text += f"  other: {gained:+.3f} nat, CPU ×{_cpu_ratio(group):.2f}"
    if any(r["default"]["says_nothing"] for r in group):
        text += "  one probability for all rows"
    said = sorted({w for r in group for w in r["default"]["warnings"]})
    return "\n      ".join([text, *said])


def _cpu_ratio(records: list[dict]) -> float:
    return sum(r["default"]["cpu"] for r in records) / sum(r["other"]["cpu"] for r in records)


def summary(records: list[dict], key: str = "default") -> dict[str, float]:
    """What a group of records says in all about its default fits."""
    fits = [r[key] for r in records]
    gaps = np.array([r["best"] - r[key]["evidence"] for r in records])
    losses = np.array(
        [[f["log_loss"], r["restarts"]["log_loss"]] for f, r in zip(fits, records, strict=True)]
    )
    warned = np.array([bool(f["warnings"]) for f in fits])
    return {
        "fits": len(records),
        "mean log-loss": losses[:, 0].mean(),
        "its ratio to restarts'": losses[:, 0].mean() / losses[:, 1].mean(),
        "mean of ratios": float(np.mean(losses[:, 0] / losses[:, 1])),
        "fall short, %": 100 * float(np.mean(gaps > SHORT)),
        "badly, %": 100 * float(np.mean(gaps > BADLY)),
        "silently, %": 100 * float(np.mean((gaps > SHORT) & ~warned)),
        "say nothing silently, %": 100
        * float(np.mean([f["says_nothing"] and not f["warnings"] for f in fits])),
        "warn, %": 100 * float(np.mean(warned)),
        "mean evaluations": float(np.mean([f["evaluations"] for f in fits])),
        "mean CPU s": float(np.mean([f["cpu"] for f in fits])),
    }


def report(records: list[dict]) -> str:
    """The closing table: a column for each method, all, groups of sets, and the other version."""
    groups = {method: [r for r in records if r["method"] == method] for method in METHODS}
    groups["all"] = records
    groups["sets seen"] = [r for r in records if real.load(r["name"]).seen]
    groups["sets held out"] = [r for r in records if not real.load(r["name"]).seen]
    columns = {name: summary(group) for name, group in groups.items() if group}
    if "other" in records[0]:
        columns["all, other version"] = summary(records, "other")
    lines = ["| default fits | " + " | ".join(columns) + " |", "| --- " * (len(columns) + 1) + "|"]
    for row in columns["all"]:
        shown = [f"{column[row]:.4g}" for column in columns.values()]
        lines.append(f"| {row} | " + " | ".join(shown) + " |")
    if "other" in records[0]:
        lines.append(f"\nCPU time, this version / other version: {_cpu_ratio(records):.3f}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--source", default=str(HERE.parent / "src"), help="the src folder of postlin")
    parser.add_argument("--against", help="the src folder of another version")
    parser.add_argument("--only", help="names of data sets, divided by commas")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--restarts", type=int, default=5)
    parser.add_argument("--write", type=Path, help="a file for all figures, as JSON")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve()
        return
    records = measured(arguments)
    print("\n" + report(records))
    if arguments.write:
        arguments.write.write_text(json.dumps(records))


if __name__ == "__main__":
    main()
