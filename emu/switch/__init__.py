"""How a leaf chooses the uplink: one module for each mode, and what the modes need to compute."""
