"""
Parallel, sequential, hybrid: iterations and time
=================================================

An iteration updates all sites at once (parallel) or one after another (sequential); the hybrid schedule
runs a few sequential sweeps before parallel iterations. All schedules reach the same fixed point, by
different paths. The paper compares the time, in Matlab, of a fit with hyperparameters on the crab data.
"""

# %%
# First we run inference at fixed kernel parameters. ``history.residuals`` holds, for each iteration,
# the largest change that the rule still proposes for any site, in units of its marginal.
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
# All schedules switch to Newton's method near the fixed point. The paper's iterations are undamped and
# do not use Newton's method. ``Parallel(iterations=20)`` does the same: it runs exactly twenty undamped
# iterations, whether they converge or not.
import warnings

from postlin.schedules import Parallel, Sequential

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # they need not converge
    plain = {
        "parallel": infer(K, y, schedule=Parallel(iterations=20)),
        "sequential": infer(K, y, schedule=Sequential(iterations=20)),
    }
display = ConvergenceDisplay(
    [run.history.residuals for run in plain.values()], 1e-8, list(plain)
).plot()
_ = display.ax_.set_title("PL, undamped, without Newton")

# %%
# Finally we compare the time of a fit with hyperparameters, as the median of three runs, with the
# paper's times. Each evaluation of the evidence starts from the previous one and costs a few
# factorisations with any schedule.
from postlin.workbench.paper import timings

print("method  seconds  paper (Matlab)")
for timing in timings("converged"):
    print(f"{timing.method:6}  {timing.seconds:7.2f}  {timing.paper:5.1f}")
