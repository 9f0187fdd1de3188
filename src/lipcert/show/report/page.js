// Tables that sort by a click or a key on their headings, and that show the rows which contain a text.
"use strict";

// What a cell sorts by: its exact number where it has one, its text otherwise; nothing for an empty cell.
function keyOf(row, column) {
  const cell = row.cells[column];
  const exact = cell.dataset.value;
  if (exact !== undefined) return Number(exact);
  return cell.textContent.trim() || null;
}

// Numbers before texts; the sign turns the order around.
function compare(a, b, sign) {
  if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
  return sign * (typeof a === "number" ? a - b : a.localeCompare(b, undefined, { numeric: true }));
}

function sortBy(table, heading) {
  const column = heading.cellIndex;
  const falling = heading.getAttribute("aria-sort") === "ascending";
  for (const other of heading.parentElement.cells) other.setAttribute("aria-sort", "none");
  heading.setAttribute("aria-sort", falling ? "descending" : "ascending");
  const body = table.tBodies[0];
  const keyed = Array.from(body.rows, (row) => [keyOf(row, column), row]);
  const empty = keyed.filter(([key]) => key === null);
  const filled = keyed.filter(([key]) => key !== null);
  filled.sort(([a], [b]) => compare(a, b, falling ? -1 : 1)); // stable, so that sorting twice refines
  body.append(...filled.concat(empty).map(([, row]) => row));
}

function makeSortable(table) {
  for (const heading of table.tHead.rows[0].cells) {
    const button = document.createElement("button");
    button.type = "button";
    button.title = "Sort by this column";
    button.append(...heading.childNodes);
    button.addEventListener("click", () => sortBy(table, heading));
    heading.append(button);
    heading.setAttribute("aria-sort", "none");
  }
}

function makeFilter(table) {
  const label = document.createElement("label");
  const input = document.createElement("input");
  label.className = "filter";
  input.type = "search";
  label.append("Only rows that contain", input);
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of table.tBodies[0].rows) {
      const text = Array.from(row.cells, (cell) => cell.textContent).join(" ").toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
  });
  table.parentElement.before(label);
}

for (const table of document.querySelectorAll("table")) {
  if (table.tBodies[0].rows.length > 1) makeSortable(table);
  if (table.tBodies[0].rows.length > 15) makeFilter(table);
}
