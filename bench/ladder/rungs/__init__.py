"""The ways to load, a file each."""
