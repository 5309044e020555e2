"""Measuring: two snapshots and a named formula, nothing is ever reset; out come metrics and fidelity checks."""
