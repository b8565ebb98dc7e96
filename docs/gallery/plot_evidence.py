"""
The evidence as a landscape
===========================

Hyperparameters are learned by maximising the log evidence, whose gradient is exact. This is what it
looks like over two of them, and the way that the optimiser takes.
"""

# %%
# Variance and length scale of the kernel on the crabs. The contours are steps of the log evidence below
# its maximum: within one of them, say two, parameters are nearly as good.
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from postlin import GPClassifier
from postlin.datasets import load, whiten
from postlin.plotting import EvidenceDisplay

crab = load("crab")
X, y = whiten(crab.X), crab.y
model = GPClassifier().fit(X, y)
_ = EvidenceDisplay.from_estimator(model, grid_resolution=12)

# %%
# Every evaluation is in ``evidence_path_``.
for theta, value in model.evidence_path_:
    print(f"log parameters {theta[0]:6.3f} {theta[1]:6.3f}: log evidence {value:.4f}")

# %%
# By name: the noise beside the length scale, where the noise is learned too. The variance, the third
# parameter, is held at what was learned; ``limits`` sets what is shown. The evidence hardly depends on
# the noise.
kernel = ConstantKernel(10.0) * RBF(1.0) + WhiteKernel(0.1, (1e-4, 10.0))
model = GPClassifier(kernel).fit(X, y)
print(model.kernel_)
_ = EvidenceDisplay.from_estimator(
    model, ("length_scale", "noise_level"), limits=((0.7, 50.0), (1e-3, 1.0)), grid_resolution=10
)
