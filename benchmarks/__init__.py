"""Measuring what the library costs, next to its rivals and the matrix products that bound it.

    plan → cases → contestants race → results → targets, tables, figure

Contestants take turns in one process, and we report ratios: these carry over to other machines,
times do not.
"""
