"""From documents to a verified, immutable snapshot, and from a snapshot to candidates."""
