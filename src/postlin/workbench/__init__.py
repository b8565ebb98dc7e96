"""The workbench evaluates methods, reproduces the paper's experiments, and reports both."""
