"""What is measured: functions of a contestant, data and a job, each with a dictionary of figures."""

import gc
import time

import numpy as np

#: θ is moved by 5 % for a warm start: both parameters, not their logarithms, times this.
MOVED = 1.05
#: Short measurements are repeated within a process up to so many times and seconds.
TIMES, SECONDS = 5, 1.0


def _status(field):
    """A size of this process in bytes, as the kernel has it."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def _peak(function):
    """The result of a function, and how far memory rose above where it stood, at its highest."""
    gc.collect()
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # forget the high-water mark
    before = _status("VmRSS")
    result = function()
    return result, _status("VmHWM") - before


def _timed(function):
    start = time.perf_counter()
    result = function()
    return result, time.perf_counter() - start


def fit(peer, data, job):
    """Hyperparameters learned: time, memory, what it reached, prediction of many points."""
    X, y = data["X"], data["y"]
    peer.warm_up(X, y)
    (model, seconds), peak = _peak(lambda: _timed(lambda: peer.fit(X, y)))
    times = [seconds]
    while len(times) < TIMES and sum(times) + seconds < SECONDS:
        times.append(_timed(lambda: peer.fit(X, y))[1])
    figures = {
        "seconds": times,
        "peak": peak,
        "evidence": model.evidence,
        "theta": [float(t) for t in model.theta],
        "converged": model.converged,
        "evaluations": model.evaluations,
    }
    if job.get("predict", True):
        new = data["X_new"]
        model.predict(new)  # once for the sake of those who compile for the shape
        (_, seconds), peak = _peak(lambda: _timed(lambda: model.predict(new)))
        figures |= {"predict": seconds, "predict_peak": peak}
    if len(data["y_test"]):
        figures |= _scores(model.predict(data["X_test"]), data["y_test"])
    return figures


def _scores(p, y):
    p_true = np.clip(np.where(y > 0, p, 1 - p), 1e-12, 1.0)
    return {"error": float(np.mean(p_true < 0.5)), "log_loss": float(-np.mean(np.log(p_true)))}


def evaluate(peer, data, job):
    """Evidence and gradient at the θ of the job, cold and warm."""
    peer.warm_up(data["X"], data["y"])
    evaluator = peer.evaluator(data["X"], data["y"])
    figures = {}
    for place, theta in job["thetas"].items():
        try:
            figures[place] = _evaluations(evaluator, np.array(theta))
        except RuntimeError as error:  # no fixed point found here; elsewhere there may be one
            figures[place] = {"evidence": None, "cold": [], "warm": [], "failed": str(error)}
    return figures


def _evaluations(evaluator, theta):
    cold, warm = [], []
    value = None
    while len(cold) < TIMES and (not cold or sum(cold) + cold[-1] < SECONDS):
        value, seconds = _timed(lambda: evaluator.cold(theta))
        cold.append(seconds)
        if evaluator.warm:
            warm.append(_timed(lambda: evaluator.warm(theta + np.log(MOVED)))[1])
    return {"evidence": value, "cold": cold, "warm": warm}


def evidence_at(peer, data, job):
    """The evidence at the optima of others."""
    evaluator = peer.evaluator(data["X"], data["y"])
    return {place: evaluator.cold(np.array(theta)) for place, theta in job["thetas"].items()}


def limit(peer, data, job):
    """Evidence and gradient beside ``dpotrf`` of the same size, in turns."""
    from scipy.linalg.lapack import dpotrf

    X, y = data["X"], data["y"]
    peer.warm_up(X, y)
    evaluator = peer.evaluator(X, y)
    K = np.asfortranarray(_gram(X, job["thetas"]["start"]))
    figures = {"dpotrf": []}
    for _ in range(job["rounds"]):
        for place, theta in job["thetas"].items():
            for _ in range(3):
                A = K.copy(order="F")
                (_, info), seconds = _timed(lambda A=A: dpotrf(A, lower=1, clean=0, overwrite_a=1))
                assert info == 0
                figures["dpotrf"].append(seconds)
            found = _evaluations_once(evaluator, np.array(theta))
            for name, seconds in found.items():
                figures.setdefault(place, {}).setdefault(name, []).append(seconds)
    return figures


def _evaluations_once(evaluator, theta):
    cold = _timed(lambda: evaluator.cold(theta))[1]
    return {"cold": cold, "warm": _timed(lambda: evaluator.warm(theta + np.log(MOVED)))[1]}


def _gram(X, theta, noise=0.1):
    """The common kernel without a second matrix where one is enough."""
    variance, length_scale = np.exp(theta)
    squares = np.einsum("ij,ij->i", X, X)
    K = X @ X.T
    K *= -2.0
    K += squares[:, None]
    K += squares
    np.maximum(K, 0.0, out=K)
    K *= -0.5 / length_scale**2
    np.exp(K, out=K)
    K *= variance
    K[np.diag_indices(len(K))] = variance + noise
    return (K + K.T) / 2 if not np.array_equal(K, K.T) else K


def memory(peer, data, job):
    """How far one evidence with gradient takes memory, in bytes.

    ``infer``: above where it stands with the covariance matrix already made. ``fit``: the way a fit
    goes, from the data, so the covariance matrix is in it.
    """
    X, y = data["X"], data["y"]
    peer.warm_up(X, y)
    theta = np.array(job["thetas"]["near optimum"])
    if job["path"] == "fit":
        evaluator = peer.evaluator(X, y)
        (_, seconds), peak = _peak(lambda: _timed(lambda: evaluator.cold(theta)))
    else:
        K = _gram(X, theta)
        (_, seconds), peak = _peak(lambda: _timed(lambda: peer.infer(K, y)))
    return {"peak": peak, "seconds": seconds}


#: The kinds of job.
KINDS = {
    "fit": fit,
    "fit-one-thread": fit,
    "evaluate": evaluate,
    "evidence_at": evidence_at,
    "limit": limit,
    "memory-infer": memory,
    "memory-fit": memory,
}
