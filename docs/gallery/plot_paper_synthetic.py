"""
Where EP fails: the paper's synthetic example
=============================================

Two latent values have a prior correlation of 0.8 and prior means that contradict both labels. With the
noisy-threshold likelihood, the posterior of this small problem consists of four pieces, one in each
quadrant.
"""

# %%
# Plain EP is undamped and accepts negative sites. Whether it arrives at a cavity with negative variance
# depends on the order in which it visits the two points.
from postlin.workbench.paper import example

found = example()
for order, fate in found.ep.items():
    print(f"EP, {order}: {fate}")

# %%
# Posterior linearisation cannot fail in this way: it fits a line to the likelihood where the posterior
# has its mass, and the residual variance of a regression is positive. The plot shows the density of the
# true posterior, the means of the parallel iterations of PL, and the mean with the ellipse of three
# standard deviations to which they converge.
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Ellipse

figure, ax = plt.subplots(figsize=(5.6, 5), layout="constrained")
levels = found.density.max() * np.array([0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0])
ax.contourf(found.axis1, found.axis2, found.density.T, levels, cmap="Greys", alpha=0.8)
variances, directions = np.linalg.eigh(found.covariance)
width, height = 6 * np.sqrt(variances)
angle = np.degrees(np.arctan2(*directions[::-1, 0]))
ellipse = Ellipse(found.mean, width, height, angle=angle, fill=False, color="#D55E00", linewidth=2)
ax.add_patch(ellipse)
ax.plot(
    *found.path.T, "x-", color="#0072B2", linewidth=1, label="means of parallel PL, from the prior mean"
)
ax.plot(
    *found.mean, "P", color="#D55E00", markersize=10, markeredgecolor="white", label="mean of PL, 3σ"
)
ax.set(
    xlabel="first latent value",
    ylabel="second latent value",
    aspect="equal",
    xlim=(-2, 5),
    ylim=(-5, 2.2),
)
_ = ax.legend(loc="upper left", framealpha=0.9)

# %%
# By default, postlin shortens the steps of EP so that no cavity becomes improper. EP does not fail
# then, and in this example it is more accurate than PL: it covers both of the large pieces, whereas PL
# has converged to one of them.
from postlin import infer
from postlin.likelihoods import NoisyThreshold
from postlin.workbench.paper import EPSILON, LABELS, PRIOR_COVARIANCE, PRIOR_MEAN

for inference in ("pl", "ep"):
    result = infer(
        PRIOR_COVARIANCE,
        LABELS,
        likelihood=NoisyThreshold(EPSILON),
        inference=inference,
        prior_mean=PRIOR_MEAN,
    )
    mean = ", ".join(f"{value:.2f}" for value in result.mean)
    state = "converged" if result.converged else "not converged"
    print(f"{inference}: {state}, mean ({mean}), log evidence {result.log_evidence:.3f}")

# %%
# For comparison, we compute the exact mean on a grid, and the exact evidence from the probabilities of
# the four quadrants.
from itertools import product

from scipy.stats import multivariate_normal

evidence = 0.0
for signs in product((1, -1), repeat=2):
    turned = PRIOR_COVARIANCE * np.outer(signs, signs)
    quadrant = multivariate_normal(-np.array(signs) * PRIOR_MEAN, turned).cdf([0, 0])
    evidence += quadrant * np.prod([1 - EPSILON if sign > 0 else EPSILON for sign in signs])
cell = (found.axis1[1] - found.axis1[0]) * (found.axis2[1] - found.axis2[0])
mean = [np.sum(found.density * axis) * cell for axis in (found.axis1[:, None], found.axis2)]
print(f"exact: mean ({mean[0]:.2f}, {mean[1]:.2f}), log evidence {np.log(evidence):.3f}")
