// All stories in one process, so that they share a daemon, a console and a browser.
import '../stories/keys.mjs';
import '../stories/guard.mjs';
import '../stories/live.mjs';
import '../stories/screens.mjs';
