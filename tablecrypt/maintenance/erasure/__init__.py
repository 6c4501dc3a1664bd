"""Erasing the rows of a person: deleting them, writing again what holds them, shredding what held them, and proof that nothing does."""
