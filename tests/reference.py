"""Slow and independent: what the library's formulas are checked against."""

import itertools

import mpmath as mp
import numpy as np

mp.mp.dps = 40


def log_jet(z):
    """Derivatives of log Z from Z and its derivatives, Z', …, Z''''."""
    n1, n2, n3, n4 = (z[k] / z[0] for k in (1, 2, 3, 4))
    return [
        mp.log(z[0]),
        n1,
        n2 - n1**2,
        n3 - 3 * n1 * n2 + 2 * n1**3,
        n4 - 4 * n1 * n3 - 3 * n2**2 + 12 * n1**2 * n2 - 6 * n1**4,
    ]


def _hermite(k, x):
    return [1, x, x**2 - 1, x**3 - 3 * x][k]


def _normal_cdf_derivatives(z, r):
    """Φ(m/r) and its derivatives in m, at z = m/r."""
    return [mp.ncdf(z)] + [
        (-1) ** (k - 1) * _hermite(k - 1, z) * mp.npdf(z) / r**k for k in (1, 2, 3, 4)
    ]


def probit_jet(m, v):
    r = mp.sqrt(1 + v)
    return log_jet(_normal_cdf_derivatives(m / r, r))


def noisy_threshold_jet(m, v, epsilon=0.01):
    r, epsilon = mp.sqrt(v), mp.mpf(epsilon)
    d = _normal_cdf_derivatives(m / r, r)
    return log_jet([epsilon + (1 - 2 * epsilon) * d[0]] + [(1 - 2 * epsilon) * x for x in d[1:]])


_NODES = None


def _legendre(order=20):
    """Gauss–Legendre in high precision."""
    global _NODES
    if _NODES is None:
        _NODES = []
        for i in range(order):
            x = mp.cos(mp.pi * (i + mp.mpf(3) / 4) / (order + mp.mpf(1) / 2))
            for _ in range(8):
                slope = order * (x * mp.legendre(order, x) - mp.legendre(order - 1, x)) / (x * x - 1)
                x -= mp.legendre(order, x) / slope
            slope = order * (x * mp.legendre(order, x) - mp.legendre(order - 1, x)) / (x * x - 1)
            _NODES.append((x, 2 / ((1 - x * x) * slope**2)))
    return _NODES


def logit_jet(m, v):
    """By brute force: panels at every scale that can matter, derivatives of the integrand itself."""
    s = mp.sqrt(v)
    edges = {mp.mpf(t) * sign for t in (0, 0.3, 0.6, 1.5, 3, 6, 12, 25, 50) for sign in (1, -1)}
    edges |= {c + k * s for k in (0, 0.5, 1, 2, 3, 4, 6, 8, 12, 16) for c in (m, m + v, m - v)} | {
        c - k * s for k in (0, 0.5, 1, 2, 3, 4, 6, 8, 12, 16) for c in (m, m + v, m - v)
    }
    scale = v / abs(m) if m else s
    edges |= {sign * k * scale for k in (0.5, 1, 2, 4, 8, 16, 32, 64, 100) for sign in (1, -1)}
    edges = sorted(edges)
    z = [mp.mpf(0)] * 5
    for a, b in itertools.pairwise(edges):
        half, middle = (b - a) / 2, (a + b) / 2
        for x, w in _legendre():
            f = middle + half * x
            density = w * half * mp.exp(-((f - m) ** 2) / (2 * v))
            p = 1 / (1 + mp.exp(-f))
            q = 1 / (1 + mp.exp(f))
            pq = p * q
            for k, d in enumerate(
                (p, pq, pq * (q - p), pq * (1 - 6 * pq), pq * (q - p) * (1 - 12 * pq))
            ):
                z[k] += density * d
    return log_jet([x / mp.sqrt(2 * mp.pi * v) for x in z])


#: For every registered likelihood the jet of log Z₊, independently.
JETS = {"probit": probit_jet, "logit": logit_jet, "noisy_threshold": noisy_threshold_jet}


def dense_posterior(K, prior_mean, tau, nu):
    """Mean and covariance of N(prior_mean, K) times sites, by the textbook's inverse."""
    n = len(tau)
    A = np.eye(n) + K @ np.diag(tau)
    covariance = np.linalg.solve(A, K)
    mean = np.linalg.solve(A, K @ nu + prior_mean)
    return mean, covariance


def density(likelihood_name, y, f, epsilon=0.01):
    """p(y|f), written down anew."""
    from scipy.special import expit, ndtr

    if likelihood_name == "probit":
        return ndtr(y * f)
    if likelihood_name == "logit":
        return expit(y * f)
    return epsilon + (1 - 2 * epsilon) * (y * f > 0)


def integrate(function, m, v, points=()):
    """∫ function(f) N(f; m, v) df by adaptive quadrature."""
    from scipy.integrate import quad

    s = np.sqrt(v)

    def integrand(f):
        return function(f) * np.exp(-0.5 * ((f - m) / s) ** 2) / (s * np.sqrt(2 * np.pi))

    inside = sorted({p for p in (*points, 0.0, m) if m - 12 * s < p < m + 12 * s})
    value, _ = quad(
        integrand, m - 12 * s, m + 12 * s, points=inside, limit=400, epsabs=1e-14, epsrel=1e-12
    )
    return value


def central_difference(function, x, step=1e-5):
    """d function / dx at a vector x."""
    x = np.asarray(x, float)
    rows = np.eye(len(x)) * step
    return np.array([(function(x + e) - function(x - e)) / (2 * step) for e in rows])
