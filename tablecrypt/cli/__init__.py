"""The command line: one module for each verb, gathered by tablecrypt/cli/main.py."""
