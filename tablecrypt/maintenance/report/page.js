"use strict";
// Sorting, filtering and unfolding. It reads what the page shows, and makes no markup of text.

const all = (selector, root = document) => Array.from(root.querySelectorAll(selector));

// --- Filter: what belongs to a table is shown or hidden together. Paper shows everything: the style hides on screens alone.

const filter = document.querySelector(".filter");
const search = document.getElementById("search");
const toggles = all(".toggle");
const status = document.querySelector(".shown");
const belonging = all("[data-table]");
const texts = new Map();
for (const each of belonging) texts.set(each.dataset.table, `${texts.get(each.dataset.table) ?? ""}\n${textOf(each)}`.toLowerCase());
const tables = all("details[data-severities]").map((details) => ({
  number: details.dataset.table,
  severities: details.dataset.severities.split(" "),
  text: texts.get(details.dataset.table),
}));

function textOf(element) {
  const titles = all("[title]", element).map((each) => each.title);
  return [element.textContent, ...titles].join("\n");
}

function applyFilter() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  const wanted = toggles.filter((each) => each.getAttribute("aria-pressed") === "true").map((each) => each.dataset.severity);
  const shown = new Set();
  for (const table of tables) {
    const isWanted = wanted.length === 0 || wanted.some((severity) => table.severities.includes(severity));
    if (isWanted && words.every((word) => table.text.includes(word))) shown.add(table.number);
  }
  for (const element of belonging) element.toggleAttribute("data-out", !shown.has(element.dataset.table));
  const isFiltered = words.length > 0 || wanted.length > 0;
  status.textContent = isFiltered ? `${shown.size} of ${tables.length} tables` : "";
}

search.addEventListener("input", applyFilter);
for (const toggle of toggles) {
  toggle.addEventListener("click", () => {
    toggle.setAttribute("aria-pressed", String(toggle.getAttribute("aria-pressed") !== "true"));
    applyFilter();
  });
}
filter.hidden = tables.length < 2;

// --- Sorting: a button in each heading, and a list of headings where a narrow screen shows none.

function valueOf(row, column) {
  const cell = row.cells[column];
  return cell.dataset.value ?? cell.textContent.trim();
}

function compare(left, right) {
  const numbers = [Number(left), Number(right)];
  const areNumbers = left !== "" && right !== "" && numbers.every(Number.isFinite);
  return areNumbers ? numbers[0] - numbers[1] : left.localeCompare(right, "en", { numeric: true });
}

function sort(table, column, direction) {
  const body = table.tBodies[0];
  const rows = Array.from(body.rows);
  const sign = direction === "ascending" ? 1 : -1;
  rows.sort((left, right) => sign * compare(valueOf(left, column), valueOf(right, column)));
  body.append(...rows);
  for (const heading of table.tHead.rows[0].cells) heading.removeAttribute("aria-sort");
  table.tHead.rows[0].cells[column].setAttribute("aria-sort", direction);
}

function makeSortable(table) {
  const headings = Array.from(table.tHead.rows[0].cells);
  const select = document.createElement("select");
  select.setAttribute("aria-label", `Sort ${table.dataset.name} by`);
  select.className = "sort-by";
  select.append(new Option("Sort by …", ""));
  headings.forEach((heading, column) => {
    if (!("sort" in heading.dataset)) return;
    const label = heading.textContent;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = label;
    button.addEventListener("click", () => {
      sort(table, column, heading.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending");
    });
    heading.replaceChildren(button);
    select.append(new Option(`${label}, ascending`, `${column} ascending`), new Option(`${label}, descending`, `${column} descending`));
  });
  select.addEventListener("change", () => {
    if (!select.value) return;
    const [column, direction] = select.value.split(" ");
    sort(table, Number(column), direction);
  });
  if (table.tBodies[0].rows.length > 1) table.before(select);
}

all("table.sortable").forEach(makeSortable);

// --- A link to a folded table unfolds it; paper unfolds everything.

function unfold() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target instanceof HTMLDetailsElement) target.open = true;
}

addEventListener("hashchange", unfold);
unfold();

let folded = [];
addEventListener("beforeprint", () => {
  folded = all("details:not([open])");
  for (const each of folded) each.open = true;
});
addEventListener("afterprint", () => {
  for (const each of folded) each.open = false;
});
