"""Child processes: how they are started, watched and ended, and how they report what went wrong."""
