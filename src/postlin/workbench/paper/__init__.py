"""The paper's experiments: Table I, the timings and the supplement's example."""
