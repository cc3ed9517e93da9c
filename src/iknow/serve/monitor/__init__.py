"""Monitoring: alarms that keep their word however often they are looked at."""

from iknow.serve.monitor.accuracy import AccuracyMonitor, AccuracyReport
from iknow.serve.monitor.alarm import DriftAlarm
from iknow.serve.monitor.kept import Monitors
from iknow.serve.monitor.report import Alarm, Detector, DriftReport
from iknow.serve.monitor.scores import watch_scores, watched_layers

__all__ = [
    "AccuracyMonitor",
    "AccuracyReport",
    "Alarm",
    "Detector",
    "DriftAlarm",
    "DriftReport",
    "Monitors",
    "watch_scores",
    "watched_layers",
]
