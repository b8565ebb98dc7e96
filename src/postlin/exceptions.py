"""What can go wrong in ways that a caller may want to tell apart."""

from sklearn.exceptions import ConvergenceWarning

__all__ = [
    "CheckpointError",
    "ConvergenceWarning",
    "ImproperCavityError",
    "ModelFileError",
    "NegativeSiteWarning",
    "NotPositiveDefiniteError",
]


class ImproperCavityError(ArithmeticError):
    """EP met a cavity distribution whose variance is negative.

    ``site`` is the index of the site and ``cavity_variance`` what was found there.
    """

    def __init__(self, site: int, cavity_variance: float) -> None:
        self.site = site
        self.cavity_variance = cavity_variance
        super().__init__(
            f"EP broke down: with site {site} removed, the cavity has variance "
            f"{cavity_variance:.4g}, because other sites have negative precision. Use "
            'EP(negative_sites="keep"), which steps around this, or inference="pl", where it '
            "cannot happen."
        )

    def __reduce__(self) -> tuple[type, tuple[int, float]]:
        return type(self), (self.site, self.cavity_variance)


class CheckpointError(ValueError):
    """A file that is no checkpoint, or that of another fit; it is left as it is."""


class ModelFileError(ValueError):
    """A file that holds no model, or one that cannot be trusted; or a model that no file can hold."""


class NotPositiveDefiniteError(ArithmeticError):
    """There is no Gaussian posterior: K is no covariance, or negative sites outweigh it."""


class NegativeSiteWarning(UserWarning):
    """EP wanted sites of negative precision and the chosen policy changed them."""
