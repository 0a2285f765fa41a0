"""A policy-gradient loop in plain PyTorch."""
