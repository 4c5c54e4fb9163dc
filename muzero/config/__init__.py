"""The settings of a run: their schema, the checks, the files and the command line."""
