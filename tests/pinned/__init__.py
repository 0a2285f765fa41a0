"""What `test_pinned_bytes.py` pins: importing a module adds its pins to `pins.PINS`."""
