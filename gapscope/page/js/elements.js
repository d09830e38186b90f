// Elements. Texts are always set as text: names come from recordings and may hold anything.

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === false) continue;
    made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

// The color of a cause beside its name; hatched where the figures are.
function swatch(cause) {
  const marker = page.causes[cause]?.marker;
  if (!marker) return null;
  const made = element("span", { class: "swatch", "aria-hidden": "true" });
  made.style.backgroundColor = marker.color;
  if (marker.pattern) made.dataset.pattern = marker.pattern.shape;
  return made;
}

// A table; heads that begin with ">" are of numbers and stand to the right, those with "~" of longer texts.
function tableOf(caption, heads, rows, className = "") {
  const kinds = heads.map((head) => ({ ">": "number", "~": "words" })[head[0]] ?? null);
  const head = element("tr", {}, ...heads.map((name, i) =>
    element("th", { scope: "col", class: kinds[i] }, name.replace(/^[>~]/, ""))));
  const body = rows.map((cells) => element("tr", {}, ...cells.map((cell, i) =>
    element("td", { class: kinds[i] }, ...[cell].flat()))));
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    element("table", { class: className }, element("caption", {}, caption),
      element("thead", {}, head), element("tbody", {}, ...body)));
}

// Text as Plotly reads it: a little HTML.
function escaped(text) {
  return String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}
