"""Faults from outside on a whole agentruns of real processes, judged by logs that it does not write.

uv run python -m tests.trials --faults F1,F3 --trials 20 --database sqlite --seed 7
"""
