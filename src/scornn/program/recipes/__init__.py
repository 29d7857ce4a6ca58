"""The settings that a run gets where the user gives none: the rows of the paper, and settings beyond it."""
