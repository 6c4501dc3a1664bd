"""The command line: `main` runs it, `_framework` finds the commands, which are in one module for each subject."""
