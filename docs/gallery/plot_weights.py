"""
Weights of rows and of classes
==============================

A row of weight w counts as w rows: the same posterior, at the price of one. Weights of classes make a
rare class count more.
"""

# %%
# A row twice, or once with weight two: the evidence and the predictions are the same.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

from postlin import GPClassifier
from postlin.plotting import DecisionDisplay

X, y = make_moons(60, noise=0.3, random_state=4)
weight = np.where(np.arange(60) < 20, 2, 1)
fixed = {"optimizer": None}
weighted = GPClassifier(**fixed).fit(X, y, sample_weight=weight)
repeated = GPClassifier(**fixed).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
print(f"log evidence, weighted: {weighted.log_marginal_likelihood_value_:.8f}")
print(f"log evidence, repeated: {repeated.log_marginal_likelihood_value_:.8f}")
difference = np.abs(weighted.predict_proba(X) - repeated.predict_proba(X)).max()
print(f"largest difference of probabilities: {difference:.1e}")

# %%
# Eighty rows of one class and eight of the other. ``class_weight="balanced"`` gives both the same
# weight in sum: the line moves away from the rare class, and more of it is found at the price of false
# alarms, counted here on rows left out. Probabilities are then those of a world in which both are as
# frequent.
rng = np.random.default_rng(0)
X = np.vstack([rng.normal((0, 0), 1, (80, 2)), rng.normal((1.8, 1.8), 0.7, (8, 2))])
y = np.repeat(["common", "rare"], [80, 8])

figure, axes = plt.subplots(1, 2, figsize=(10.5, 4.2), layout="constrained")
for ax, class_weight in zip(axes, (None, "balanced"), strict=True):
    model = GPClassifier(class_weight=class_weight, **fixed).fit(X, y)
    DecisionDisplay.from_estimator(model, response="probability", ax=ax)
    ax.set_title(f"class_weight={class_weight!r}", pad=26)
    found = model.classes_[model.loo_predict_proba_.argmax(axis=1)]
    right = np.sum((found == y) & (y == "rare"))
    alarms = np.sum((found == "rare") & (y == "common"))
    print(f"class_weight={class_weight!r}: {right} of 8 rare rows found, {alarms} false alarms")
