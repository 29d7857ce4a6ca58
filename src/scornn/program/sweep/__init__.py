"""Searches over settings: Optuna draws and keeps the trials, each trial is an ordinary run directory."""
