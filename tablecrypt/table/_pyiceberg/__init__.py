"""Every private name of PyIceberg 0.12 that tablecrypt touches, in this package and nowhere else. The dependency is pinned to that version.

Each module lists the private names that it takes and why, and gives them public ones: as functions and classes of their own, or as seam
classes that turn PyIceberg's private hooks into public ones for our subclasses to fill in.
"""
