"""The jobs of the command line: from files to a bundle, to assertions, to a report."""
