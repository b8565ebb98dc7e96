"""Self-contained HTML reports: no scripts, no network, inline SVG figures. Needs ``postlin[cli]``."""

from postlin.workbench.report.drawing import standalone
from postlin.workbench.report.figures import (
    confusion_matrix,
    convergence,
    evidence_surface,
    evidence_traces,
    reliability,
    roc,
    synthetic,
)
from postlin.workbench.report.page import Figure, Section, Table, render

__all__ = [
    "Figure",
    "Section",
    "Table",
    "confusion_matrix",
    "convergence",
    "evidence_surface",
    "evidence_traces",
    "reliability",
    "render",
    "roc",
    "standalone",
    "synthetic",
]
