"""The six data sets of the paper, as they are, and the whitening that it applies to them."""

from postlin.datasets._load import NAMES, load, whiten

__all__ = ["NAMES", "load", "whiten"]
