"""
Leave-one-out without refitting
===============================

``loo_predict_proba_`` holds the predicted probabilities of every training row when that row is left
out, at the hyperparameters learned from all rows. If leaving out a row hardly changes the other sites,
this costs nothing; otherwise it costs a factorisation or two.
"""

# %%
# We compare it with n refits, each without one row.
import time

import matplotlib.pyplot as plt
import numpy as np

from postlin import GPClassifier
from postlin.datasets import load, whiten

crab = load("crab")
X, y = whiten(crab.X)[::2], crab.y[::2]
model = GPClassifier().fit(X, y)

start = time.perf_counter()
quick = model.loo_predict_proba_[:, 1]
seconds = time.perf_counter() - start

start = time.perf_counter()
refitted = np.empty(len(y))
for i in range(len(y)):
    others = np.arange(len(y)) != i
    without = GPClassifier(model.kernel_, optimizer=None).fit(X[others], y[others])
    refitted[i] = without.predict_proba(X[i : i + 1])[0, 1]
print(f"leave one out {seconds:.2f} s, refitting {time.perf_counter() - start:.2f} s")
print(f"largest difference {np.abs(quick - refitted).max():.1e}")

# %%
figure, axes = plt.subplots(1, 2, figsize=(9.5, 4), layout="constrained")
axes[0].plot([0, 1], [0, 1], "--", color="0.4", linewidth=1)
axes[0].plot(refitted, quick, "o", color="#0072B2", markersize=4)
axes[0].set(xlabel="probability, refitted without the row", ylabel="leave-one-out probability")
axes[0].set_aspect("equal")
axes[1].semilogy(np.sort(np.abs(quick - refitted)), "o", color="#0072B2", markersize=4)
axes[1].set(xlabel="rows, sorted", ylabel="difference of probabilities")
for ax in axes:
    ax.spines[["top", "right"]].set_visible(False)

# %%
# Leave-one-out predictions show which rows are hard to explain, and whether the probabilities are
# calibrated on unseen rows.
from postlin.plotting import LeaveOneOutDisplay, ReliabilityDisplay

figure, axes = plt.subplots(1, 2, figsize=(10.5, 4.6), layout="constrained")
LeaveOneOutDisplay.from_estimator(model, ax=axes[0])
_ = ReliabilityDisplay.from_estimator(model, n_bins=5, ax=axes[1])
