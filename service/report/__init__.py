"""The evaluation report: one HTML file that loads nothing. Needs the `train` extra."""
