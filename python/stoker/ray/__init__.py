"""Across machines: data workers on Ray."""
