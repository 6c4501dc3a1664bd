"""The command line: `main` runs it, `commands` finds the commands, which are in one module for each subject."""
