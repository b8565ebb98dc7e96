"""
The evidence as a landscape
===========================

``fit`` learns the hyperparameters by maximising the log evidence with its exact gradient.
``EvidenceDisplay`` shows the log evidence as a function of two hyperparameters, and the path of the
optimiser.
"""

# %%
# We vary the variance and the length scale of the kernel on the crab data. The colour bar shows how far
# the log evidence lies below its maximum. Parameters within about two of the maximum are nearly as good
# as the best.
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from postlin import GPClassifier
from postlin.datasets import load, whiten
from postlin.plotting import EvidenceDisplay

crab = load("crab")
X, y = whiten(crab.X), crab.y
model = GPClassifier().fit(X, y)
_ = EvidenceDisplay.from_estimator(model, grid_resolution=12)

# %%
# ``evidence_path_`` lists every evaluation.
for theta, value in model.evidence_path_:
    print(f"log parameters {theta[0]:6.3f} {theta[1]:6.3f}: log evidence {value:.4f}")

# %%
# You can choose the two parameters by name. Here the kernel also learns its noise level, and we plot it
# against the length scale. The third parameter, the variance, keeps its learned value, and ``limits``
# sets the range of the plot. The evidence hardly depends on the noise level.
kernel = ConstantKernel(10.0) * RBF(1.0) + WhiteKernel(0.1, (1e-4, 10.0))
model = GPClassifier(kernel).fit(X, y)
print(model.kernel_)
_ = EvidenceDisplay.from_estimator(
    model, ("length_scale", "noise_level"), limits=((0.7, 50.0), (1e-3, 1.0)), grid_resolution=10
)
