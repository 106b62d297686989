"""Why a peer is not measured."""


class PeerError(Exception):
    """A peer cannot be installed, loaded or asked; the message says why. The others are measured all the same."""
