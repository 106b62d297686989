"""What must hold whatever comes in: one home of properties for `test_properties.py` and for `loadtests/fuzz.py`."""
