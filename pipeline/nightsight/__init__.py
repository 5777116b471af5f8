"""nightsight: workloads run under a profiler, captures become reports. `docs/architecture.md` is the map."""

__version__ = "0.1.0"
