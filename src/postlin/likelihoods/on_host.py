"""Likelihoods that compute in NumPy only, for arrays that are elsewhere: there and back again."""

from typing import Any

from postlin._typing import Array, override
from postlin.likelihoods.base import BinaryLikelihood, Change, Jet, JetChange, Response
from postlin.linalg.arrays import Place, on_host
from postlin.linalg.functions import has_special_functions


class OnHost(BinaryLikelihood):
    """The likelihood ``base`` for arrays in another place than the memory of NumPy."""

    name = "on_host"

    def __init__(self, base: BinaryLikelihood, place: Place) -> None:
        self._base, self._place = base, place
        self.parameters, self.symmetric = base.parameters, base.symmetric
        self.log_concave, self.differentiable = base.log_concave, base.differentiable

    @override
    def regression(self, y: Array, m: Array, v: Array) -> Response:
        return Response(*self._moved(self._base.regression, y, m, v))

    @override
    def regression_changes(self, y: Array, m: Array, v: Array) -> list[Change]:
        return [Change(*parts) for parts in self._moved(self._base.regression_changes, y, m, v)]

    @override
    def density_changes(self, y: Array, m: Array, v: Array) -> list[Change]:
        return [Change(*parts) for parts in self._moved(self._base.density_changes, y, m, v)]

    @override
    def jets(self, m: Array, v: Array) -> tuple[Jet, Jet]:
        plus, minus = self._moved(self._base.jets, m, v)
        return Jet(*plus), Jet(*minus)

    @override
    def jet(self, y: Array, m: Array, v: Array) -> Jet:
        return Jet(*self._moved(self._base.jet, y, m, v))

    @override
    def slopes(self, m: Array, v: Array) -> tuple[Array, Array]:
        plus, minus = self._moved(self._base.slopes, m, v)
        return plus, minus

    @override
    def jet_changes(self, m: Array, v: Array) -> list[tuple[JetChange, JetChange]]:
        return [(plus, minus) for plus, minus in self._moved(self._base.jet_changes, m, v)]

    def _moved(self, compute: Any, *values: Any) -> Any:
        """What is computed from copies in NumPy's memory, moved to the place."""
        return self._back(compute(*map(on_host, values)))

    def _back(self, result: Any) -> Any:
        if isinstance(result, tuple | list):
            return [self._back(part) for part in result]
        return self._place.put(result)


def anywhere(likelihood: BinaryLikelihood, place: Place) -> BinaryLikelihood:
    """The likelihood in a form that takes and returns arrays in this place."""
    if place.is_host or (likelihood.anywhere and has_special_functions(place)):
        return likelihood
    return OnHost(likelihood, place)
