"""How dear a checkpoint is, as ratios measured in one run: `uv run python -m tests.benchmarks W1 W2 [memory]`."""
