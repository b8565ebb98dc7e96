"""
Table I of the paper, on one data set
=====================================

The paper compares five methods with three likelihoods on six data sets by ten-fold cross-validation.
This example computes the fourteen cells of one column, the crab data, for Laplace's method (L),
parallel and sequential EP (PEP, SEP), and parallel and sequential posterior linearisation (PPL, SPL).
Laplace's method cannot use the noisy threshold, which has no second derivative. The command ``postlin
reproduce table`` computes the whole table.
"""

# %%
# Each method iterates to convergence and learns its kernel again in every fold. All methods use the
# same folds.
import numpy as np
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from postlin.datasets import load, whiten
from postlin.workbench.evaluation.methods import make_classifier
from postlin.workbench.paper import PAPER, SETS

crab = load("crab")
X, y = whiten(crab.X), crab.y
folds = StratifiedKFold(3, shuffle=True, random_state=0)
column = list(SETS).index("crab")

errors = {}
print("likelihood       method  error  paper")
for (likelihood, method), paper in PAPER.items():
    predicted = cross_val_predict(make_classifier(method, likelihood), X, y, cv=folds)
    errors[likelihood, method] = np.mean(predicted != y)
    print(f"{likelihood:16} {method:6}  {errors[likelihood, method]:.3f}  {paper[column]:.3f}")

# %%
# One crab is half a per cent, and another shuffle of the folds also changes the error by a row or two.
# Sequential and parallel methods converge to the same fixed point and therefore have the same errors.
# In the paper, which stops after ten undamped iterations, they differ.
import matplotlib.pyplot as plt

figure, ax = plt.subplots(figsize=(6.5, 4.6), layout="constrained")
rows = np.arange(len(errors))
ax.hlines(rows, [PAPER[cell][column] for cell in errors], list(errors.values()), color="0.8")
ax.plot([PAPER[cell][column] for cell in errors], rows, "s", color="#D55E00", label="paper, ten folds")
ax.plot(list(errors.values()), rows, "o", color="#0072B2", label="here, three folds")
ax.set_yticks(rows, [f"{likelihood.replace('_', ' ')}, {method}" for likelihood, method in errors])
ax.invert_yaxis()
ax.set(xlabel="error rate on the crabs", xlim=(0, None))
ax.legend(frameon=False, loc="upper right")
ax.spines[["top", "right"]].set_visible(False)
