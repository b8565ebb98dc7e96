"""Self-contained HTML reports: no scripts, no network, figures as inline SVG. Needs matplotlib."""

from postlin.workbench.report.curves import reliability, roc
from postlin.workbench.report.maps import evidence_surface, synthetic
from postlin.workbench.report.matrix import confusion_matrix
from postlin.workbench.report.page import render
from postlin.workbench.report.parts import Figure, Section, Table
from postlin.workbench.report.progress import convergence, evidence_traces
from postlin.workbench.report.svg import standalone

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
