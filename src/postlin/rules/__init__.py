"""The rules: how Laplace, EP and PL set a site, for two classes and for many jointly."""

from postlin.rules.binary import EP, PL, REGISTRY, Laplace, Rule

__all__ = ["EP", "PL", "REGISTRY", "Laplace", "Rule"]
