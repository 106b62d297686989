"""Tercet against its peers on the same weights; `run.py` is the command."""
