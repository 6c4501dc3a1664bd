"""Pure cryptographic formats: no file, no network, no clock; randomness is an argument."""
