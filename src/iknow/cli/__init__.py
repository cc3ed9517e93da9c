"""The command line: an app, the jobs it gives out, the tables it reads, what it prints."""
