"""The commands: options, help and work; what is shown is in `console`."""
