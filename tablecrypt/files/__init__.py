"""Encrypted files in any store: AGS1 streams, and a FileIO that lets no plaintext through."""
