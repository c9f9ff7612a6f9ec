// Rows of a table, kept in step with figures that change: what is the same stays the same node, so nothing flickers.

import { element } from "./page.js";

const drawn = new WeakMap(); // row -> what it shows, as text

/** A word with a coloured dot: `tone` is good, warn, bad or none. */
export const state = (tone, word) => element("span", `state ${tone}`, word);

/** A cell of two lines. */
export const twoLines = (first, second) => [element("b", "", first), ...(second ? [element("small", "", second)] : [])];

function describe(content) {
  return [content].flat().map((part) => part.outerHTML ?? part);
}

function fill(row, cells, heads) {
  row.replaceChildren(...cells.map((content, index) => {
    const cell = element(index ? "td" : "th", heads[index].className, ...[content].flat());
    if (!index) cell.scope = "row";
    cell.role = index ? "cell" : "rowheader"; // phones lay rows out as cards, which would end their being a table
    cell.dataset.label = heads[index].textContent;
    return cell;
  }));
}

/** Makes the body of a table show `rows`: lists of cells, each a text, a node or a list of both. `empty` is said without rows. */
export function fillTable(table, rows, empty) {
  const [body] = table.tBodies;
  const heads = [...table.tHead.rows[0].cells];
  table.role = "table";
  const wanted = rows.length ? rows : [[element("span", "none", empty)]];
  wanted.forEach((cells, index) => {
    const row = body.rows[index] ?? body.insertRow();
    const news = JSON.stringify(cells.map(describe));
    if (drawn.get(row) === news) return;
    drawn.set(row, news);
    row.role = "row";
    fill(row, cells, heads);
    if (!rows.length) row.cells[0].colSpan = heads.length;
  });
  while (body.rows.length > wanted.length) body.deleteRow(-1);
}
