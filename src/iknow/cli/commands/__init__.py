"""The commands: options and help; the work is in `jobs`, and what is shown in `console`."""
