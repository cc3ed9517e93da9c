"""Measuring what the library costs, beside the matrix products that bound it and its rivals.

    plan → cases → contestants race → results → targets, tables, figure

What is timed side by side runs in one process, in turns, and is reported as ratios: these carry
over to other machines, times do not.
"""
