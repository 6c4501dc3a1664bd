"""Pins: what a trusted place remembers of the newest version of a table, so that an old or edited one is refused."""
