// Entry point: starts everything on the page that needs scripts.

import { listenToLinks } from "./links.js";
import { showStepColumns } from "./pictures/columns.js";
import { showTables } from "./tables/start.js";
import { showTimeline } from "./timeline/start.js";
import { showLocalTimes } from "./times.js";
import { showWindows } from "./windows.js";

listenToLinks();
showLocalTimes();
showWindows();
showTables();
showStepColumns();
showTimeline();
