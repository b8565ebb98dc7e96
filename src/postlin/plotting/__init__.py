"""Pictures of a fit, in scikit-learn's manner: ``SomeDisplay.from_estimator(model)``. Needs matplotlib.

Every display keeps its data. ``plot`` draws them, into new axes or into those that are passed, which
``ax_`` and ``figure_`` hold afterwards.
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
