"""The doorbell, and the only room that imports rq and django_rq.

bell ..... rings for a run; how many rings wait
horse .... what the process that answers a ring knows of its own end
worker ... the process that hears rings and forks a horse for each
"""

from agentruns.queues.bell import NAME, SLICE, depth, ring
from agentruns.queues.horse import draining, draining_since, process_name
from agentruns.queues.worker import Worker

__all__ = ["NAME", "SLICE", "Worker", "depth", "draining", "draining_since", "process_name", "ring"]
