// Entry point of the trend page.

import { listenToLinks } from "../links.js";
import { showTables } from "../tables/start.js";
import { showTrends } from "./chart.js";

listenToLinks();
showTables();
showTrends();
