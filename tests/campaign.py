"""A campaign of generated problems: fit each of them and check every invariant.

``python tests/campaign.py SEED`` repeats one problem; ``python tests/campaign.py FIRST LAST`` takes all
from the first up to the last. Both print the table.
"""

import json
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

from campaign_invariants import INVARIANTS, Outcome
from campaign_problems import Problem

import postlin
from postlin import ConvergenceWarning, ImproperCavityError, NegativeSiteWarning

#: The seconds of processor time that a problem with all its checks may take.
LIMIT = 20
_OWN_WARNINGS = (ConvergenceWarning, NegativeSiteWarning)
_OWN_ERRORS = (ValueError, postlin.NotPositiveDefiniteError, ImproperCavityError)
_FOREIGN = ("numpy", "scipy", "sklearn", "joblib", "skops", "mpmath")
_SOURCE = str(Path(postlin.__file__).parent)


class TooLongError(Exception):
    """A problem took longer than its limit."""


@contextmanager
def _watched(outcome, where):
    """Record foreign warnings and errors as violations, and collect all messages."""
    messages = []
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        try:
            yield messages
        except TooLongError:
            outcome.violations.append(("time", f"{where} took more than {LIMIT} s"))
        except Exception as error:  # which kinds are allowed is what is checked here
            _judge(outcome, where, error)
    for warning in record:
        text = str(warning.message)
        messages.append(text)
        foreign = any(f"/{name}/" in warning.filename for name in _FOREIGN)
        if foreign or not issubclass(warning.category, _OWN_WARNINGS):
            place = f"{Path(warning.filename).name}:{warning.lineno}"
            said = f"{where}: {warning.category.__name__} from {place}: {text[:90]}"
            if ("foreign warning", said) not in outcome.violations:
                outcome.violations.append(("foreign warning", said))


def _judge(outcome, where, error):
    """An error is a refusal if it is postlin's own and the fit's, and a violation elsewhere."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    own = isinstance(error, _OWN_ERRORS) and last.filename.startswith(_SOURCE)
    policy = getattr(outcome.problem.options["inference"], "negative_sites", None)
    if isinstance(error, ImproperCavityError) and policy != "raise":
        own = False
    if own and where == "fit":
        outcome.refusal = str(error)
        return
    place = f"{Path(last.filename).name}:{last.lineno}"
    text = f"{where}: {type(error).__name__} from {place}: {str(error)[:90]}"
    outcome.violations.append(("foreign error" if not own else "refusal after fit", text))


def examine(seed):
    """Fit the problem of this seed and check every invariant."""
    outcome = Outcome(Problem.drawn(seed))
    problem, began = outcome.problem, time.process_time()
    with _alarm(LIMIT):
        with _watched(outcome, "fit") as messages:
            outcome.model = problem.classifier().fit(problem.X, problem.y, problem.weight)
        outcome.messages = messages
        if outcome.refusal is None and not outcome.violations:
            for invariant in INVARIANTS:
                with _watched(outcome, invariant.__name__):
                    found = list(invariant(outcome))
                    outcome.violations += [(invariant.__name__, what) for what in found]
    outcome.seconds = time.process_time() - began
    return outcome


@contextmanager
def _alarm(seconds):
    """Raise ``TooLongError`` after so many seconds of processor time."""

    def ring(*_):
        raise TooLongError

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    except TooLongError:  # between two steps
        pass
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def tally(outcomes):
    """Counts {kind: [problems, converged, flagged, refused, violations]} of outcomes."""
    counts = {}
    for outcome in outcomes:
        fitted = outcome.refusal is None and outcome.model is not None
        row = [1, int(fitted and outcome.model.converged_), int(fitted and outcome.flagged)]
        row += [int(outcome.refusal is not None), int(bool(outcome.violations))]
        for kind in ["all", *outcome.problem.kinds]:
            counts[kind] = [a + b for a, b in zip(counts.get(kind, [0] * 5), row, strict=True)]
    return counts


def joined(parts):
    """The table of several chunks, each a JSON list of its tally and its lines."""
    counts, lines = {}, []
    for part in map(json.loads, parts):
        for kind, row in part[0].items():
            counts[kind] = [a + b for a, b in zip(counts.get(kind, [0] * 5), row, strict=True)]
        lines += part[1]
    return table(counts, lines)


def lines_of(outcomes):
    """A line for each violation, with what repeats it."""
    return [
        f"python tests/campaign.py {outcome.problem.seed}  # {invariant}: {what}"
        for outcome in outcomes
        for invariant, what in outcome.violations
    ]


def table(counts, lines):
    """The table of all problems by kind, and of all violations by invariant."""
    rows = [f"{'problems by kind':34}{'problems':>9}{'converged':>10}{'flagged':>8}{'refused':>8}"]
    rows[0] += f"{'violated':>9}"
    for kind in sorted(counts, key=lambda kind: (kind != "all", kind)):
        a, b, c, d, e = counts[kind]
        rows.append(f"{kind:34}{a:9}{b:10}{c:8}{d:8}{e:9}")
    broken = Counter(line.split("# ")[1].split(":")[0] for line in lines)
    rows += [f"violations of {name}: {count}" for name, count in broken.most_common()]
    return "\n".join([*rows, *lines])


if __name__ == "__main__":
    ends = [int(argument) for argument in sys.argv[1:3]]
    outcomes = []
    for seed in range(ends[0], ends[-1] + (len(ends) == 1)):
        outcome = examine(seed)
        if len(ends) == 1:
            print(outcome.problem.options, outcome.problem.X.shape, outcome.problem.kinds)
            print(outcome.refusal, outcome.messages)
        print("\n".join(lines_of([outcome])), end="\n" if outcome.violations else "", flush=True)
        outcomes.append(outcome)
    print(table(tally(outcomes), lines_of(outcomes)))
    slow = sorted(outcomes, key=lambda outcome: -outcome.seconds)[:5]
    print("slowest:", [(o.problem.seed, round(o.seconds, 1)) for o in slow])
