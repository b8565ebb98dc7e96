"""White noise as part of the likelihood: p(y|g) = ∫ p(y|g+e) N(e; 0, s²) de."""

from typing import ClassVar, Self

from postlin._typing import Array
from postlin._validation import is_real
from postlin.likelihoods.base import BinaryLikelihood, Jet, JetChange


class WithNoise(BinaryLikelihood):
    """``base`` observed through Gaussian noise of the given variance.

    The model is the same as with a white-noise term in the kernel, but the latent function is the
    noise-free one. Laplace can use every likelihood this way, and PL with the noisy threshold comes
    markedly closer to the exact posterior. The covariance must not contain the white noise again.
    """

    name: ClassVar[str] = "with_noise"

    def __init__(self, base: BinaryLikelihood, variance: float) -> None:
        if not isinstance(base, BinaryLikelihood):
            raise ValueError(f"base must be a likelihood object such as Probit(), got {base!r}.")
        if not is_real(variance) or not 0.0 <= float(variance) < float("inf"):
            raise ValueError(f"variance must be finite and not negative, got {variance!r}.")
        self.base = base
        self.variance = float(variance)
        self.symmetric, self.anywhere = base.symmetric, base.anywhere
        self.log_concave = base.log_concave
        self.differentiable = base.differentiable or variance > 0
        self.parameters = ("variance", *base.parameters)

    @property
    def free(self) -> dict[str, tuple[float, float]]:
        """The bounds of the free parameters of ``base``."""
        return self.base.free

    @property
    def other_starts(self) -> list[dict[str, float]]:
        """The further starts of ``base``."""
        return self.base.other_starts

    def replaced(self, **parameters: float) -> Self:
        """A copy with another noise variance or other parameters of ``base``."""
        variance = parameters.pop("variance", self.variance)
        return type(self)(self.base.replaced(**parameters), variance)

    def jet_changes(self, m: Array, v: Array) -> list[tuple[JetChange, JetChange]]:
        """The derivative by the noise variance is that by v; the others are those of ``base``."""
        v = v + self.variance
        plus, minus = ((jet.log_z_by_v, jet.g_by_v, jet.h_by_v) for jet in self.base.jets(m, v))
        return [(plus, minus), *self.base.jet_changes(m, v)]

    def jets(self, m: Array, v: Array) -> tuple[Jet, Jet]:
        """The jets of ``base`` at N(m, v + s²)."""
        return self.base.jets(m, v + self.variance)

    def slopes(self, m: Array, v: Array) -> tuple[Array, Array]:
        """g₊ and g₋ of ``base`` at N(m, v + s²)."""
        return self.base.slopes(m, v + self.variance)

    def jet(self, y: Array, m: Array, v: Array) -> Jet:
        """The jet of ``base`` at N(m, v + s²) for one label."""
        return self.base.jet(y, m, v + self.variance)

    def __repr__(self) -> str:
        return f"WithNoise({self.base!r}, variance={self.variance!r})"
