"""One small program for each reader; protocol.py says what they hear and answer."""
