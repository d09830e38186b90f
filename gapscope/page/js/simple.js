// A page that is read from top to bottom: nothing is picked in it.

setUpTheme();
if (typeof DecompressionStream === "undefined") document.getElementById("too-old").hidden = false;
else setUpFigures();
globalThis.gapscope = { inflated };
document.documentElement.dataset.ready = "yes";
