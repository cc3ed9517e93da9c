"""Monitoring: alarms that keep their word however often they are looked at."""
