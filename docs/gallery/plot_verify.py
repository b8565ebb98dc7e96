"""
How far is a fit from the exact posterior?
==========================================

``verify`` estimates the exact log evidence and the exact probabilities by a short Monte Carlo run. Here
it compares posterior linearisation with expectation propagation, where the noisy threshold makes the
posterior far from Gaussian.
"""

# %%
# The kernel is the same for both, so that both have the same exact posterior.
import matplotlib.pyplot as plt

from postlin import GPClassifier
from postlin.datasets import load, whiten
from postlin.plotting import VerificationDisplay

crab = load("crab")
X, y = whiten(crab.X)[::2], crab.y[::2]
pl = GPClassifier(likelihood="noisy_threshold").fit(X, y)
ep = GPClassifier(pl.kernel_, likelihood="noisy_threshold", inference="ep", optimizer=None).fit(X, y)

found = {name: model.verify(random_state=0) for name, model in {"PL": pl, "EP": ep}.items()}
for name, verification in found.items():
    print(f"{name}\n{verification}\n")

# %%
# Points are rows; bars are 95 % intervals of the exact probabilities. The diamond above is the log
# evidence of the fit, and the interval beside it holds the exact one.
figure, axes = plt.subplots(1, 2, figsize=(11, 4.8), layout="constrained", sharey=True)
for ax, verification in zip(axes, found.values(), strict=True):
    VerificationDisplay.from_verification(verification, ax=ax)
for _ in range(3):  # the layout of axes above others takes several passes
    figure.draw_without_rendering()
