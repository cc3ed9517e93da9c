"""What several commands need, and the jobs that load more than a command needs for its help."""
