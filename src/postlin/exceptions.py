"""The errors and warnings that a caller may want to tell apart."""

from sklearn.exceptions import ConvergenceWarning as ConvergenceWarning


class ImproperCavityError(ArithmeticError):
    """EP met a cavity distribution with a negative variance, ``cavity_variance``, at ``site``."""

    def __init__(self, site: int, cavity_variance: float) -> None:
        self.site, self.cavity_variance = site, cavity_variance
        super().__init__(
            f"EP broke down: with site {site} removed, the cavity has variance "
            f"{cavity_variance:.4g}, because other sites have negative precision. Use "
            'EP(negative_sites="keep"), which steps around this, or inference="pl", where it '
            "cannot happen."
        )

    def __reduce__(self) -> tuple[type, tuple[int, float]]:
        return type(self), (self.site, self.cavity_variance)


class CheckpointError(ValueError):
    """The file is no checkpoint, or the checkpoint of another fit; it stays unchanged."""


class ModelFileError(ValueError):
    """The file holds no model or cannot be trusted, or the model cannot be stored in a file."""


class NotPositiveDefiniteError(ArithmeticError):
    """There is no Gaussian posterior, because K is no covariance or negative sites outweigh it."""


class FileWarning(UserWarning):
    """A file could not be written or is damaged in part; the result is right, but may take longer."""


class NegativeSiteWarning(UserWarning):
    """EP proposed sites of negative precision, and the chosen policy changed them."""
