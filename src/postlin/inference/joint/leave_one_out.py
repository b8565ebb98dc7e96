"""Leave-one-out without refitting: how far the other sites move when an observation is removed."""

from dataclasses import replace

import numpy as np

from postlin._typing import Array
from postlin.inference.joint.evidence import JointApproximation
from postlin.inference.joint.problem import JointMap, JointProblem
from postlin.linalg.arrays import copied
from postlin.linalg.blocks import inverted, symmetric, times, transposed
from postlin.rules.sites import Sites


def disturbances(approximation: JointApproximation) -> Array:
    """For each row, the largest move of any other site after one observation of the row is removed.

    The moves are of first order, which is enough to tell small ones from large ones.
    """
    problem, iterate = approximation.problem, approximation.iterate
    linearised, share = JointMap(problem, iterate), problem.weights.share
    X = share[:, None, None] * iterate.scaled_tau
    loosened = symmetric(inverted(np.eye(X.shape[1]) - X))
    push = times(loosened, share[:, None] * iterate.pull)
    gain = symmetric(loosened @ X)
    found = np.empty(len(push))
    for i in range(len(found)):
        across = linearised.columns(i, bool(share[i] < 1.0))  # (n, D, D)
        b = -(across @ push[i])
        P, q = iterate.proposal.change(b, across @ gain[i] @ transposed(across))
        moves = np.maximum(np.abs(P).max(axis=(1, 2)), np.abs(q).max(axis=1))
        found[i] = np.max(moves / problem.weights.weight)  # of the site of one observation
    return found


def without_one(approximation: JointApproximation, i: int) -> tuple[JointProblem, Sites]:
    """The problem without one observation of point i, and the sites to start from."""
    problem = approximation.problem
    weights, left = problem.weights.without(i)
    start = Sites(*(part.copy() for part in approximation.sites))
    start.tau[i] *= left
    start.nu[i] *= left
    prior = problem.prior
    if problem.levels:
        prior = prior._replace(covariances=[copied(K) for K in prior.covariances])
        prior.add_noise(problem.levels, weights.share - problem.weights.share)
    return replace(problem, weights=weights, prior=prior), start
