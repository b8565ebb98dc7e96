"""The data sets of the paper, as they are, and the whitening that it applies to them."""

from postlin.datasets._load import MANY_CLASSES, NAMES, load, whiten

__all__ = ["MANY_CLASSES", "NAMES", "load", "whiten"]
