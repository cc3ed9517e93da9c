"""The reproduction of the paper: its data, networks, protocol, tables and figures."""
