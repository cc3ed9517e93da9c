"""Tables of named columns, through pyarrow: read in parts and written in parts."""
