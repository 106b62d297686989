"""Text in, vectors, logits and spans out: the models, their folders, and the measures."""
