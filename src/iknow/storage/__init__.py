"""Classifiers in files: bundles that run no code, written in one step, with checksums."""
