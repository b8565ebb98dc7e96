"""
Weights of rows and of classes
==============================

A row of weight w counts as w rows: it gives the same posterior at the cost of one row. Class weights
increase the influence of a rare class.
"""

# %%
# Repeating a row and giving it weight two lead to the same evidence and the same predictions.
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
# The next data set has eighty rows of one class and eight of the other. ``class_weight="balanced"``
# gives both classes the same total weight. The decision boundary moves away from the rare class: the
# model finds more of its rows, at the cost of more false alarms, which we count by leave-one-out. The
# probabilities then refer to a population in which both classes are equally frequent.
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
