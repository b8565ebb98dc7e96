"""
Parallel, sequential, hybrid: iterations and time
=================================================

All sites at once, one after another, or a few rounds of the one before the other. The fixed point is
the same; the way there is not. The paper compares them by time, in Matlab, for a fit with
hyperparameters on the crabs.
"""

# %%
# First inference alone, at fixed kernel parameters. ``history.residuals`` holds the largest move that
# any site is still asked to make after each iteration, in units of its marginal.
import matplotlib.pyplot as plt
import numpy as np

from postlin import infer
from postlin.datasets import load, whiten
from postlin.plotting import ConvergenceDisplay

crab = load("crab")
X, y = whiten(crab.X), np.where(crab.y == "M", 1.0, -1.0)
squared = ((X[:, None] - X) ** 2).sum(axis=2)
K = 100 * np.exp(-0.5 * squared / 2.0**2) + 0.1 * np.eye(len(X))

figure, axes = plt.subplots(1, 2, figsize=(9.5, 3.8), layout="constrained", sharey=True)
for ax, rule in zip(axes, ("pl", "ep"), strict=True):
    runs = {s: infer(K, y, inference=rule, schedule=s) for s in ("parallel", "sequential", "hybrid")}
    residuals = [run.history.residuals for run in runs.values()]
    ConvergenceDisplay(residuals, 1e-8, list(runs)).plot(ax)
    ax.set_title(rule.upper())
    for schedule, run in runs.items():
        print(f"{rule} {schedule:10} {run.n_iter:3} iterations, log evidence {run.log_evidence:.8f}")
_ = axes[1].set_ylabel("")

# %%
# Newton's method takes over near the fixed point in all of them. The paper's iterations are undamped
# and without Newton, which ``Parallel(iterations=20)`` does too: twenty of them, whatever comes.
import warnings

from postlin.schedules import Parallel, Sequential

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # that they have not converged
    plain = {
        "parallel": infer(K, y, schedule=Parallel(iterations=20)),
        "sequential": infer(K, y, schedule=Sequential(iterations=20)),
    }
display = ConvergenceDisplay(
    [run.history.residuals for run in plain.values()], 1e-8, list(plain)
).plot()
_ = display.ax_.set_title("PL, undamped, without Newton")

# %%
# Time of a fit with its hyperparameters, the median of three, beside the paper's. An evaluation of the
# evidence starts from the last one and costs a few factorisations, whichever the schedule is.
from postlin.workbench.paper.results import timings

print("method  seconds  paper (Matlab)")
for timing in timings("converged"):
    print(f"{timing.method:6}  {timing.seconds:7.2f}  {timing.paper:5.1f}")
