"""What matplotlib draws."""
