"""The equations of the fixed point and the evidence, written down anew in dense algebra.

Where double precision is not enough for an ill-conditioned covariance, the posterior is computed with
mpmath instead.
"""

import mpmath as mp
import numpy as np
from numpy.polynomial.legendre import leggauss
from scipy.special import log_expit, log_ndtr

_NODES, _WEIGHTS = leggauss(20)
#: Above this number of rows nothing is computed with mpmath, which takes seconds there.
FEW = 30


def posterior(K, tau, nu, *, exactly=False):
    """Means and variances of N(0, K) times sites, and log |I + KT|."""
    n = len(tau)
    if not exactly:
        A = np.eye(n) + K * tau
        covariance = np.linalg.solve(A, K)
        return covariance @ nu, np.diag(covariance).copy(), np.linalg.slogdet(A)[1]
    with mp.workdps(60):
        dense = mp.matrix(K.tolist())
        A = mp.eye(n) + dense * mp.diag([mp.mpf(float(t)) for t in tau])
        covariance = mp.inverse(A) * dense
        mean = covariance * mp.matrix([float(one) for one in nu])
        found = [float(mean[i]) for i in range(n)], [float(covariance[i, i]) for i in range(n)]
        return np.array(found[0]), np.array(found[1]), float(mp.log(mp.fabs(mp.det(A))))


def log_density(likelihood, y, f):
    """log p(y|f)."""
    if likelihood.name == "probit":
        return log_ndtr(y * f)
    if likelihood.name == "logit":
        return log_expit(y * f)
    if likelihood.name == "noisy_threshold":
        wrong = likelihood.epsilon
        return np.log(np.where(y * f > 0, 1 - wrong, wrong))
    return likelihood.log_density(y, f)


def tilted(likelihood, y, m, v):
    """log Z_y and its first two derivatives in m at N(m, v), by moments of the tilted density."""
    noise = 0.0
    if likelihood.name == "with_noise":
        likelihood, noise = likelihood.base, likelihood.variance
    total = v + noise
    log_z, mean, variance = np.vectorize(_moments, excluded=[0], otypes=[float] * 3)(
        likelihood, y, m, total
    )
    return log_z, (mean - m) / total, (variance / total - 1.0) / total


def _moments(likelihood, y, m, v):
    """log Z, mean and variance of p(y|f) N(f; m, v)/Z on panels where either factor changes."""
    s = np.sqrt(v)
    near = m + s * np.arange(-38.0, 38.5, 0.5)
    steep = np.concatenate([-(2.0 ** np.arange(9, -4, -1)), [0.0], 2.0 ** np.arange(-3, 10)])
    edges = np.unique(np.concatenate([near, steep[(steep > near[0]) & (steep < near[-1])]]))
    half, middle = 0.5 * np.diff(edges), 0.5 * (edges[1:] + edges[:-1])
    f = (middle[:, None] + half[:, None] * _NODES).ravel()
    with np.errstate(divide="ignore", under="ignore"):
        log_weight = np.log((half[:, None] * _WEIGHTS).ravel()) - 0.5 * ((f - m) / s) ** 2
        log_weight = log_weight + log_density(likelihood, np.full_like(f, y), f)
        top = log_weight.max()
        weight = np.exp(log_weight - top)
    size = weight.sum()
    mean = float(weight @ f / size)
    log_z = float(top + np.log(size) - 0.5 * np.log(2 * np.pi * v))
    return log_z, mean, float(weight @ (f - mean) ** 2 / size)


def mode_response(likelihood, y, f):
    """The first two derivatives of log p(y|f) for probit and logit."""
    if likelihood.name == "probit":
        ratio = np.exp(-0.5 * f**2 - 0.5 * np.log(2 * np.pi) - log_ndtr(y * f))
        return y * ratio, -ratio * (y * f + ratio)
    p = np.exp(log_expit(f))
    return (y + 1) / 2 - p, -np.exp(log_expit(f) + log_expit(-f))


def proposed(rule, likelihood, y, mean, variance, tau, nu, copies):
    """The sites of single observations that the rule sets at a posterior; ``copies`` is max(w, 1)."""
    if rule == "laplace":
        g, h = mode_response(likelihood, y, mean)
        return -h, -h * mean + g
    m, v = mean, variance
    if rule in ("ep", "cl"):
        m, v = cavity(mean, variance, tau / copies, nu / copies)
    if rule == "ep":
        _, g, h = tilted(likelihood, y, m, v)
        rho = -h
    else:
        _, plus, _ = tilted(likelihood, np.ones_like(m), m, v)
        _, minus, _ = tilted(likelihood, -np.ones_like(m), m, v)
        g, rho = np.where(y > 0, plus, minus), -plus * minus
    stretch = 1.0 / (1.0 - rho * v)
    return rho * stretch, rho * stretch * m + g * stretch


def cavity(mean, variance, tau, nu):
    """The marginals without these sites."""
    gap = 1.0 - tau * variance
    return (mean - variance * nu) / gap, variance / gap


def log_evidence(rule, likelihood, y, weight, sites, solved):
    """The log evidence at sites whose posterior is (means, variances, log determinant)."""
    (tau, nu), (mean, variance, log_size) = sites, solved
    direct = 0.5 * nu @ mean - 0.5 * log_size
    if rule == "laplace":
        scales = weight * log_density(likelihood, y, mean) - nu * mean + 0.5 * tau * mean**2
        return direct + scales.sum()
    m, v = cavity(mean, variance, tau / weight, nu / weight)
    log_z, _, _ = tilted(likelihood, y, m, v)
    each = log_z - 0.5 * (mean**2 / variance - m**2 / v + np.log(variance / v))
    return direct + weight @ each
