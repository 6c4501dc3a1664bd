"""Pure cryptographic formats: no file, no network, no clock, no randomness of its own."""
