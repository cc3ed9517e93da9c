"""Monitoring: alarms that keep their word however often they are looked at."""

from iknow.serve.monitor.accuracy import AccuracyMonitor, AccuracyReport
from iknow.serve.monitor.drift import Detector, DriftAlarm, DriftReport, watch_scores
from iknow.serve.monitor.gamblers import Alarm
from iknow.serve.monitor.monitors import Monitors

__all__ = [
    "AccuracyMonitor", "AccuracyReport", "Alarm", "Detector", "DriftAlarm", "DriftReport",
    "Monitors", "watch_scores",
]  # fmt: skip
