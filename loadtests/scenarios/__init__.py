"""What `chaos.py` does to a service: each module has the scenarios of one kind."""
