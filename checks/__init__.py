"""Checks of the repository itself, run by `make lint`. They are not part of the installed package."""
