"""Writes of Spark SQL: how rows are laid out, where tasks put their files, and the one commit at the end.

Spark plans a write       ─▶ layout.py    how rows are distributed and sorted
its tasks are to run      ─▶ commits.py   what they get, the locations of their files
all tasks have finished   ─▶ commits.py   one snapshot of what they report
"""
