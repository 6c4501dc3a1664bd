"""Encrypted tables: metadata of format version 3, snapshots and their commits, writing and scanning data."""
