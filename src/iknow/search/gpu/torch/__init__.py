"""Search with torch."""
