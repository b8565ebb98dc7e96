"""
Many classes: one against the rest, or one against one
======================================================

Many classes are split into binary problems. ``one_vs_rest`` has one problem for every class and
normalises their probabilities. ``one_vs_one`` has one problem for every pair of classes, each with
fewer rows, and combines their probabilities by pairwise coupling (Wu, Lin and Weng, 2004).
"""

# %%
# We use two measurements of the iris data, in which two of the species overlap. With
# ``shared_kernel=True`` all problems share their hyperparameters, which avoids extreme values for the
# species that can be separated.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_iris
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from postlin import GPClassifier
from postlin.plotting import DecisionDisplay

iris = load_iris(as_frame=True)
X = iris.data[["sepal length (cm)", "sepal width (cm)"]]
y = iris.target_names[iris.target]

figure, axes = plt.subplots(1, 2, figsize=(10.5, 4.2), layout="constrained")
models = {}
for ax, kind in zip(axes, ("one_vs_rest", "one_vs_one"), strict=True):
    models[kind] = GPClassifier(multi_class=kind, shared_kernel=True).fit(X, y)
    DecisionDisplay.from_estimator(models[kind], ax=ax)
    ax.set_title(kind.replace("_", " "), pad=26)

# %%
# We compare their cross-validation scores with the leave-one-out score, which needs no refitting.
folds = StratifiedKFold(5, shuffle=True, random_state=0)
codes = iris.target.to_numpy()
for kind, model in models.items():
    p = cross_val_predict(model, X, y, cv=folds, method="predict_proba")
    error = np.mean(p.argmax(axis=1) != codes)
    score = np.log(p[np.arange(len(codes)), codes]).mean()
    loo = model.loo_log_score_ / len(codes)
    print(f"{kind:12} error {error:.3f}, log score {score:.3f} (leave one out {loo:.3f})")

# %%
# Every binary problem is a fit with two classes and has all its attributes.
for fit in models["one_vs_one"].base_estimator_.estimators_:
    print(f"{fit.name}: {len(fit.rows)} rows, log evidence {fit.log_marginal_likelihood_value_:.2f}")

# %%
# ``LeaveOneOutDisplay`` marks the rows that the other rows contradict most.
from postlin.plotting import LeaveOneOutDisplay

_ = LeaveOneOutDisplay.from_estimator(models["one_vs_rest"])
