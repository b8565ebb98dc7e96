"""Pictures of a fit, in scikit-learn's manner: ``SomeDisplay.from_estimator(model)``. Needs matplotlib.

Every display keeps the data that it shows, draws them with ``plot`` into axes of its own or into those
that it is given, and leaves them in ``ax_`` and ``figure_``.
"""

from postlin.plotting.convergence import ConvergenceDisplay
from postlin.plotting.decision import DecisionDisplay
from postlin.plotting.evidence import EvidenceDisplay
from postlin.plotting.leave_one_out import LeaveOneOutDisplay
from postlin.plotting.relevance import RelevanceDisplay
from postlin.plotting.reliability import ReliabilityDisplay

__all__ = [
    "ConvergenceDisplay",
    "DecisionDisplay",
    "EvidenceDisplay",
    "LeaveOneOutDisplay",
    "RelevanceDisplay",
    "ReliabilityDisplay",
]
