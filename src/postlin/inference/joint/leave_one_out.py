"""Which rows would be missed: what leaving one out does to the sites of the others."""

from dataclasses import replace

import numpy as np

from postlin._typing import Array
from postlin.inference.joint.evidence import JointApproximation
from postlin.inference.joint.jacobian import JointLinearised
from postlin.inference.joint.problem import JointProblem
from postlin.linalg.blocks import inverted, symmetric, times
from postlin.rules.sites import Sites


def disturbances(approximation: JointApproximation) -> Array:
    """For each row, how much any other site would move without one observation of it.

    To first order, which is enough to tell small moves from large ones.
    """
    problem, iterate = approximation.problem, approximation.solution.iterate
    linearised = JointLinearised(iterate)
    X = problem.share[:, None, None] * iterate.scaled_tau
    loosened = symmetric(inverted(np.eye(X.shape[1]) - X))
    push = times(loosened, problem.share[:, None] * iterate.pull)
    gain = symmetric(loosened @ X)
    weight = np.ones(len(push)) if problem.weight is None else problem.weight
    found = np.empty(len(push))
    for i in range(len(found)):
        across = linearised.columns(i, bool(problem.share[i] < 1.0))  # (n, D, D)
        b = -(across @ push[i])
        P, q = iterate.proposal.change(b, across @ gain[i] @ np.swapaxes(across, 1, 2))
        moves = np.maximum(np.abs(P).max(axis=(1, 2)), np.abs(q).max(axis=1))
        found[i] = np.max(moves / weight)  # of the site of one observation
    return found


def without_one(approximation: JointApproximation, i: int) -> tuple[JointProblem, Sites]:
    """The problem with one observation of point i less, and where to start from."""
    problem: JointProblem = approximation.problem
    start = Sites(*(part.copy() for part in approximation.sites))
    weight = np.ones(len(start.nu)) if problem.weight is None else problem.weight.copy()
    before, fewer = weight[i], max(weight[i] - 1.0, 0.0)
    weight[i] = fewer
    start.tau[i] *= fewer / before
    start.nu[i] *= fewer / before
    if problem.levels is None:
        return replace(problem, weight=weight), start
    prior = problem.prior._replace(covariances=[K.copy() for K in problem.prior.covariances])
    for K, level in zip(prior.covariances, problem.levels, strict=True):
        K[i, i] += level / max(fewer, 1.0) - level / max(before, 1.0)
    return replace(problem, weight=weight, prior=prior), start
