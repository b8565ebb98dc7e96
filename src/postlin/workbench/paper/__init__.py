"""The paper's experiments: Table I, the supplement's example, the timings. Nothing imports these."""
