"""The forms of a fleet: a page, and a brief."""

from nightsight.render.fleet.brief import fleet_brief, fleet_brief_json
from nightsight.render.fleet.html import render_fleet
from nightsight.render.fleet.page import FleetVerdict, verdict_of

__all__ = ["FleetVerdict", "fleet_brief", "fleet_brief_json", "render_fleet", "verdict_of"]
