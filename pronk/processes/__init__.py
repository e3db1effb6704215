"""Child processes: how they are started, watched and ended, and how they tell what went wrong."""
