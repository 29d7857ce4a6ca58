"""Files to arrays: finding them, checking them, and knowing them again by their fingerprints."""
