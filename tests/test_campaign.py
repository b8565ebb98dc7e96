"""Generated problems keep every invariant; the table of them is printed after the tests.

A chunk of the campaign runs with the other tests, the rest with ``make test-slow``.
"""

import json

import campaign
import pytest
from campaign_invariants import fixed_point

#: Chunks, the problems in each, and the violations that a failure prints.
CHUNKS, SIZE, SHOWN = 26, 60, 20
#: The chunk that runs with the other tests; it takes 10 s.
FAST = 1


@pytest.mark.parametrize(
    "chunk", [pytest.param(k, marks=[pytest.mark.slow] * (k != FAST)) for k in range(CHUNKS)]
)
def test_generated_problems(chunk, record_property):
    outcomes = [campaign.examine(seed) for seed in range(chunk * SIZE, (chunk + 1) * SIZE)]
    lines = campaign.lines_of(outcomes)
    record_property("campaign", json.dumps([campaign.tally(outcomes), lines]))
    assert not lines, "\n".join(lines[:SHOWN])


def test_a_fit_that_only_claims_to_have_converged_is_found_out():
    outcome = campaign.examine(1)
    problem = outcome.problem
    assert outcome.violations == []
    assert outcome.sound
    outcome.model = problem.classifier(optimizer=None, tol=0.2).fit(
        problem.X, problem.y, problem.weight
    )
    (what, *_) = fixed_point(outcome)
    assert what.startswith("converged, but the residual is")
    outcome.violations = [("fixed_point", what)]
    (line,) = campaign.lines_of([outcome])
    assert line.startswith("python tests/campaign.py 1  # fixed_point: converged")
    assert line in campaign.table(campaign.tally([outcome]), [line])
