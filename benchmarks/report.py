"""``results.md`` and ``time.svg`` from the store."""

import os
from pathlib import Path

import plot
import tables
from criteria import matrices_above, verdicts
from plan import BY_NAME, HERE, OURS
from store import Store, disturbed, middle

_NAMES = """PPL and SPL are postlin's parallel and sequential posterior linearisation, PEP and SEP its
parallel and sequential expectation propagation."""


def machine() -> str:
    """Processor, cores, memory."""
    cpu = next(
        line.split(":", 1)[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    )
    memory = int(Path("/proc/meminfo").read_text().split()[1]) / 1024**2
    return f"{cpu}, {len(os.sched_getaffinity(0))} cores, {memory:.0f} GiB of memory"


def _versions(store: Store) -> str:
    seen: dict[str, dict[str, set[str]]] = {}
    for record in store.all():
        if record["key"][0] in BY_NAME and record["outcome"] == "measured":
            environment = seen.setdefault(BY_NAME[record["key"][0]].environment, {})
            for package, version in record["figures"]["versions"].items():
                environment.setdefault(package, set()).add(version)
    lines = []
    for environment, packages in seen.items():
        listed = ", ".join(f"{p} {'/'.join(sorted(v))}" for p, v in sorted(packages.items()))
        lines.append(f"`{environment}`: {listed}")
    return ". ".join(lines) or "nothing measured"


def _caveats(store: Store) -> str:
    known = [r for r in store.all() if r["key"][0] in BY_NAME]
    old = sum(r["fingerprint"] != BY_NAME[r["key"][0]].fingerprint() for r in known)
    busy = sum(map(disturbed, known))
    lines = []
    if old:
        lines.append(
            f"{old} of {len(known)} measurements were made before the last change of the code."
        )
    if busy:
        lines.append(f"During {busy} of {len(known)} the machine was busy with other things.")
    return " ".join(lines)


def _comparisons(store: Store) -> str:
    """What was measured; ``write`` prints which targets that meets."""
    return tables.table(["what", "measured"], [[v.what, v.measured] for v in verdicts(store)])


def _memory(store: Store) -> str:
    rows = []
    for contestant in OURS:
        cells = [contestant.name]
        for n in (2000, 8000):
            for path in ("infer", "fit"):
                found = store.figures(contestant.name, f"memory-{path}", f"synthetic-{n}")
                known = f"{matrices_above(found[0]['peak'], path, n):.2f}" if found else None
                tried = store.outcome(contestant.name, f"memory-{path}", f"synthetic-{n}")
                cells.append(known or (tried or "–").split(":")[0])
        rows.append(cells)
    header = ["", "2000, `infer`", "2000, as in a fit", "8000, `infer`", "8000, as in a fit"]
    return tables.table(header, rows)


def _imports(store: Store) -> str:
    found = store.figures("postlin", "import", "")
    if not found:
        return "Not measured."
    base, both = middle(found[0]["sklearn"]), middle(found[0]["both"])
    return f"scikit-learn's `gaussian_process` {base:.2f} s; postlin adds {both - base:.3f} s."


def sections(store: Store) -> dict[str, str]:
    """The report by headings."""
    matrix, place = tables.matrix, tables.evaluation_time

    def times(kind: str) -> str:
        return matrix(store, tables.fit_time(kind), kind)

    return {
        "In short": _comparisons(store),
        "Fit with hyperparameters: seconds (PPL's time as a fraction)": times("fit"),
        "The same, every process kept to one thread": times("fit-one-thread"),
        "Evidence + gradient near the optimum: seconds cold, warm": matrix(
            store, place("near optimum"), "evaluate"
        ),
        "The same at the start": matrix(store, place("start"), "evaluate"),
        "Log evidence reached (PPL's log evidence at the same θ)": matrix(
            store, tables.evidence, "fit"
        ),
        "σ² and ℓ found, and evaluations or steps": matrix(store, tables.optimum, "fit"),
        "Peak memory of a fit: MB (n² doubles)": matrix(store, tables.peak, "fit"),
        "Memory of one evidence + gradient above the Gram matrix: n² doubles": _memory(store),
        "Prediction of 10,000 points: seconds (MB)": matrix(store, tables.prediction, "fit"),
        "Held-out rows: error, mean log loss": matrix(store, tables.scores, "fit", split=True),
        "Import": _imports(store),
    }


def write(store: Store) -> None:
    """Both files, and the verdicts on standard output."""
    dates = sorted({r["date"] for r in store.all()})
    span = " to ".join(dict.fromkeys((dates[0], dates[-1]))) if dates else "no date"
    facts = f"{_NAMES}\n\n{machine()}; {span}. {_versions(store)}. {_caveats(store)}"
    head = f"# postlin beside other libraries\n\n{facts.strip()}"
    picture = "![Time against n](time.svg)"
    body = [f"## {title}\n\n{text.strip()}" for title, text in sections(store).items()]
    (HERE / "results.md").write_text(
        "\n\n".join([head, picture, *body, (HERE / "notes.md").read_text()])
    )
    plot.draw(store, HERE / "time.svg")
    for verdict in verdicts(store):
        word = {True: "pass", False: "FAIL", None: "-"}[verdict.passed]
        print(f"{verdict.line}  {word:5s}{verdict.what}: {verdict.measured} (target {verdict.target})")
