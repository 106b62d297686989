"""What each command of `tercet` does; `service/cli.py` says what a user can type."""
