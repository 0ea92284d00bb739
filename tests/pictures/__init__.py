"""The README's pictures, made from the real pages: `uv run python -m tests.pictures`."""
