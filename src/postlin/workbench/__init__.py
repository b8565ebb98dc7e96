"""Evaluation of methods, the paper's experiments, reports, and the command line."""
