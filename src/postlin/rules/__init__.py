"""The rules: how PL, CL, EP and Laplace set a site, for two classes and for many jointly."""

from postlin._typing import Marginals
from postlin.rules.binary import CL, EP, PL, REGISTRY, Laplace, Rule
from postlin.rules.sites import AtCavity, AtMarginal, AtMode, set_sites

__all__ = [
    "CL",
    "EP",
    "PL",
    "REGISTRY",
    "AtCavity",
    "AtMarginal",
    "AtMode",
    "Laplace",
    "Marginals",
    "Rule",
    "set_sites",
]
