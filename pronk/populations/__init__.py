"""Population-based training: `plan` reads the file, `rules` decide who copies whom, `evolving` trains in rounds."""
