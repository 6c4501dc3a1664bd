"""Tests that others can run on their own parts: contracts as pytest classes. Needs pytest."""
