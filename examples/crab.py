"""Fit a classifier to the crab data and print its errors, by posterior linearisation and others.

Ten-fold cross-validation on whitened data, hyperparameters learned in every fold, as in the paper.
"""

import numpy as np
from sklearn.model_selection import KFold, cross_validate

from postlin import GPClassifier
from postlin.datasets import load, whiten

METHODS = {
    "Laplace": {"inference": "laplace"},
    "EP": {"inference": "ep"},
    "PL": {"inference": "pl"},
    "PL, sequential": {"inference": "pl", "schedule": "sequential"},
}


def main() -> None:
    """Print one line a method."""
    crab = load("crab")
    X, y = whiten(crab.X), crab.y
    folds = KFold(10, shuffle=True, random_state=0)
    print(crab.description)
    print(f"{'method':16s} {'error':>7s} {'log loss':>9s} {'seconds a fit':>14s}")
    for name, options in METHODS.items():
        scores = cross_validate(
            GPClassifier(**options), X, y, cv=folds, scoring=("accuracy", "neg_log_loss")
        )
        error = 1 - np.mean(scores["test_accuracy"])
        loss = -np.mean(scores["test_neg_log_loss"])
        print(f"{name:16s} {error:7.3f} {loss:9.3f} {np.mean(scores['fit_time']):14.2f}")


if __name__ == "__main__":
    main()
