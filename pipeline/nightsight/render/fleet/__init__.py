"""The page of a fleet."""

from nightsight.render.fleet.html import render_fleet
from nightsight.render.fleet.page import FleetVerdict, verdict_of

__all__ = ["FleetVerdict", "render_fleet", "verdict_of"]
