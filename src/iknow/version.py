"""The version of iknow, written into every bundle."""

__version__ = "0.1.0.dev0"
