"""Oracle, inputs, metric: what expected values come from. Imports torch only."""
