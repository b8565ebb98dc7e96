"""Self-contained HTML reports: no scripts, no network, figures as inline SVG. Needs matplotlib."""

from postlin.report.curves import reliability, roc
from postlin.report.maps import evidence_surface, synthetic
from postlin.report.matrix import confusion_matrix
from postlin.report.page import render
from postlin.report.parts import Figure, Section, Table
from postlin.report.progress import convergence, evidence_traces
from postlin.report.svg import standalone

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
