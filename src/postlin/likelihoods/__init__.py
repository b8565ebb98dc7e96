"""Likelihoods; each has its own file, which computes the jets of log Z_y.

A new binary likelihood is a subclass of ``BinaryLikelihood`` in a file of its own and a name below.
"""

from postlin.likelihoods.base import BinaryLikelihood, Jet, Likelihood
from postlin.likelihoods.conditional_moments import ConditionalMoments
from postlin.likelihoods.density import DensityLikelihood
from postlin.likelihoods.logit import Logit
from postlin.likelihoods.noisy_threshold import NoisyThreshold
from postlin.likelihoods.probit import Probit
from postlin.likelihoods.with_noise import WithNoise

#: The likelihoods that can be chosen by name, as in ``likelihood="probit"``.
REGISTRY: dict[str, type[BinaryLikelihood]] = {k.name: k for k in (Probit, Logit, NoisyThreshold)}

__all__ = [
    "REGISTRY",
    "BinaryLikelihood",
    "ConditionalMoments",
    "DensityLikelihood",
    "Jet",
    "Likelihood",
    "Logit",
    "NoisyThreshold",
    "Probit",
    "WithNoise",
]
