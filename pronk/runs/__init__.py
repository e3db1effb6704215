"""A run directory on disk: its checkpoints, its lines of metrics, its state."""
