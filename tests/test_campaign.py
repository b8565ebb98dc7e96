"""Generated problems keep every invariant; the table of them is printed after the tests.

A chunk of the campaign runs with the other tests, the rest with ``make test-slow``.
"""

import json

import campaign
import numpy as np
import pytest
from campaign_invariants import Outcome, fixed_point, gradient
from campaign_problems import Problem

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


def test_the_gradient_is_checked_where_the_evidence_oscillates(monkeypatch):
    """The data of problem 1253 span 400,000 units, and the period of its kernel is one."""
    problem = Problem.drawn(1253)
    model = problem.classifier(optimizer=None).fit(problem.X, problem.y)
    outcome = Outcome(problem, model)
    fit = model._estimators[0]
    theta, right = fit.hyperparameters.theta, type(fit).log_marginal_likelihood
    assert np.abs(right(fit, theta, eval_gradient=True)[1]).max() > 1e3
    assert list(gradient(outcome)) == []

    def wrong(self, at, eval_gradient=False):
        found = right(self, at, eval_gradient)
        return (found[0], 1.01 * found[1]) if eval_gradient else found

    monkeypatch.setattr(type(fit), "log_marginal_likelihood", wrong)
    (what,) = gradient(outcome)
    assert what.startswith("gradient ")
