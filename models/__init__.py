"""Text in, vectors, logits and spans out: the models, their folders, and the measures."""

import os

# ONNX Runtime 1.32 for Linux reports its use to its maker over the network, from its import on, and only this stops
# it: `disable_telemetry_events()` comes too late. So it is said before any module of ours can import it.
os.putenv("ORT_DISABLE_TELEMETRY", "1")
