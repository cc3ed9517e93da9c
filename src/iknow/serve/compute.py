"""Compute: where batches are assessed, in a thread or in processes, and what comes back.

Processes load the same bundle by its path. Its arrays are mapped if they are large, so that all
processes share one copy of the evidence. A process that dies takes its batch with it: the batch is
tried once more with new processes, then refused. A process whose parent died ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import lru_cache
from multiprocessing import get_context, parent_process
from typing import Any, Protocol

import numpy as np

from iknow.classifier.estimator import EpistemicClassifier
from iknow.classifier.memory import follow
from iknow.core.arrays import Floats, Ints
from iknow.core.codes import for_json
from iknow.core.evidence import NO_EXEMPLAR, distances_for_and_against
from iknow.errors import InputError
from iknow.explain.answers import Answers
from iknow.explain.assessment import Assessment
from iknow.serve.bodies import Rows, as_inputs
from iknow.serve.portraits import Portrayer, finite
from iknow.serve.schema import Refusal
from iknow.serve.served import BundleSource, ServedModel, load_model
