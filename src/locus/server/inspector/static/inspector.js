// The scripts of the inspector. Every page works without them; only following a thread needs them.

import { startCopying } from "./copy.js";
import { startFollowing } from "./follow.js";
import { startKeyboard } from "./keyboard.js";
import { showMark } from "./marks.js";
import { prepareToAnnounce } from "./page.js";
import { startTheme } from "./theme.js";

document.documentElement.setAttribute("data-scripts", "");
prepareToAnnounce();
startTheme();
startCopying();
startKeyboard();
startFollowing();
showMark();
