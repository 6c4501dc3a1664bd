"""Builds the cases with tablecrypt, the same bytes each time: `python -m conformance.build`. Nobody needs it who only reads the cases."""
