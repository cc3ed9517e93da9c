"""What computes: bounds and distances of blocks of rows, one file for each library."""
