"""Training of the bundled models; needs the `train` extra."""
