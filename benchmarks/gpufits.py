"""Neighbours and the joint softmax on a GPU: the parts of ``gpu.py`` about them.

    python benchmarks/gpu.py --parts neighbours joint
    python benchmarks/gpu.py --device cpu --rows 3000 --parts neighbours   # to try it

Covertype is read as ``inducing.py`` does. The times of the part about neighbours are those of a new
process: what the GPU's libraries load when they are called first is in them.
"""

import time

import inducing
import numpy as np
from covertype import Split
from largepeers import _given, _neighbours
from sklearn.datasets import load_digits
from sklearn.gaussian_process.kernels import RBF
from sklearn.metrics import log_loss
from sklearn.preprocessing import StandardScaler

from postlin import GPClassifier

#: Rows of digits that are learned from; the others are predicted.
DIGITS = 1000


def _name(device):
    return device.name if device.is_cuda else None


def neighbours(report, device, options):
    """Fits with a kernel that is given and with one that is chosen, and all predictions."""
    X, y, new, truth = inducing.rows_of(report, options.rows)
    data = Split(X, (y > 0).astype(int), new, (truth > 0).astype(int))
    for what, fit in (("Matérn ½ and 64 neighbours given", _given), ("all chosen", _neighbours)):
        device.clean()
        (model, about), seconds = device.seconds(lambda fit=fit: fit(data, 0, _name(device)))
        p, predicting = device.seconds(lambda model=model: model.predict_proba(data.X_test))
        report.say(
            f"- n = {len(X)}, {what}; fit {seconds:.1f} s; {len(new)} predictions {predicting:.1f} s; "
            f"{about}; error {np.mean(p.argmax(axis=1) != data.y_test):.4f}, NLPD "
            f"{log_loss(data.y_test, p):.4f}; peak {device.peak:.1f} GB."
        )


def joint(report, device, options):
    """The joint softmax on digits, hyperparameters learned."""
    X, y = load_digits(return_X_y=True)
    X = StandardScaler().fit(X[:DIGITS]).transform(X)
    n = DIGITS if device.is_cuda else min(options.rows, DIGITS)
    for name, kernel in (("1.0 * RBF(1.0)", 1.0 * RBF(1.0)), ("the default kernel", None)):
        device.clean()
        model = GPClassifier(kernel, multi_class="joint", random_state=0, device=_name(device))
        model, seconds = device.seconds(lambda model=model: model.fit(X[:n], y[:n]))
        began = time.perf_counter()
        p = model.predict_proba(X[DIGITS:])
        predicting = time.perf_counter() - began
        report.say(
            f"- n = {n}, 10 classes, {name}; fit {seconds:.1f} s; log evidence "
            f"{model.log_marginal_likelihood_value_:.4f}; {model.kernel_}; {len(p)} predictions "
            f"{predicting:.2f} s; log-loss {log_loss(y[DIGITS:], p):.4f}; peak {device.peak:.1f} GB."
        )


PARTS = (neighbours, joint)
TITLES = {
    "neighbours": "Neighbours: Covertype",
    "joint": "Joint softmax: digits",
}
