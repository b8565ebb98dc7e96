"""Pictures of a fit, in scikit-learn's manner: ``SomeDisplay.from_estimator(model)``. Needs matplotlib.

Every display keeps its data. ``plot`` draws them, into new axes or into those that are passed, which
``ax_`` and ``figure_`` hold afterwards.
"""

from postlin.plotting.decision import DecisionDisplay
from postlin.plotting.fitting import ConvergenceDisplay, EvidenceDisplay
from postlin.plotting.reliability import ReliabilityDisplay
from postlin.plotting.training_data import LeaveOneOutDisplay, RelevanceDisplay
from postlin.plotting.verification import VerificationDisplay

__all__ = [
    "ConvergenceDisplay",
    "DecisionDisplay",
    "EvidenceDisplay",
    "LeaveOneOutDisplay",
    "RelevanceDisplay",
    "ReliabilityDisplay",
    "VerificationDisplay",
]
