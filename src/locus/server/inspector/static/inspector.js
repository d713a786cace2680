// The scripts of the inspector. Every page works without them; only following a thread needs them.

import { startClock } from "./clock.js";
import { startCopying } from "./copy.js";
import { startFollowing } from "./follow.js";
import { startKeyboard } from "./keyboard.js";
import { showMark, startChoosing } from "./marks.js";
import { prepareToAnnounce } from "./page.js";
import { startPanes } from "./panes.js";
import { startTheme } from "./theme.js";

document.documentElement.setAttribute("data-scripts", "");
prepareToAnnounce();
startTheme();
startClock();
startCopying();
startKeyboard();
startFollowing();
showMark();
startChoosing();
startPanes();
