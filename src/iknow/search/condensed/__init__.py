"""Condensed layers: few rows in full, and for each of the others a short code."""
