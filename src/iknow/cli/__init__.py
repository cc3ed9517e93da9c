"""The command line: the app, its jobs, the tables it reads, and what it prints."""
