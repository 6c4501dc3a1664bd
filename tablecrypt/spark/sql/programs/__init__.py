"""DataFrames of a Python program that the connector reads and writes: the program responds in the place of the planner's process."""
