// Entry point of the page of a fleet.

import { listenToLinks } from "../links.js";
import { showTables } from "../tables/start.js";
import { showLocalTimes } from "../times.js";

listenToLinks();
showLocalTimes();
showTables();
