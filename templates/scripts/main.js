// Entry point: starts everything on the page that needs scripts.

import { showFixes } from "./fixes.js";
import { listenToLinks, markCurrentSection } from "./links.js";
import { showStepColumns } from "./pictures/columns.js";
import { showHeatMaps } from "./pictures/heats.js";
import { showTables } from "./tables/start.js";
import { showTimeline } from "./timeline/start.js";
import { showLocalTimes } from "./times.js";
import { showWindows } from "./windows.js";

listenToLinks();
markCurrentSection();
showLocalTimes();
showWindows();
showFixes();
showTables();
showStepColumns();
showHeatMaps();
showTimeline();
