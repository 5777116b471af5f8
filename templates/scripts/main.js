// Entry point: starts everything on the page that needs scripts.

import { listenToLinks } from "./links.js";
import { showTables } from "./tables/start.js";
import { showTimeline } from "./timeline/start.js";
import { showLocalTimes } from "./times.js";

listenToLinks();
showLocalTimes();
showTables();
showTimeline();
