"use strict";
// Everything can be read without this script.
(() => {
  const status = document.getElementById("status");
  const collator = new Intl.Collator("en", {numeric: true});

  function keyOf(row, column) {
    const place = row.cells[column];
    const value = place.dataset.value;
    if (value !== undefined) return value === "" ? null : Number(value);
    return place.textContent.trim();
  }

  // What has no value comes last in either direction. Rows that are equal keep their order.
  function compare(one, other, sign) {
    if (one === null || other === null) return (one === null) - (other === null);
    return sign * (typeof one === "number" ? one - other : collator.compare(one, other));
  }

  function sort(table, head, column) {
    const body = table.tBodies[0];
    const first = head.dataset.first || "ascending";
    const second = first === "ascending" ? "descending" : "ascending";
    const direction = head.getAttribute("aria-sort") === first ? second : first;
    const sign = direction === "ascending" ? 1 : -1;
    const rows = [...body.rows].sort((one, other) => compare(keyOf(one, column), keyOf(other, column), sign));
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", direction);
    body.append(...rows);
    status.textContent = `Sorted by ${head.textContent.trim()}, ${direction}`;
  }

  for (const table of document.querySelectorAll("table.sortable")) {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      button.addEventListener("click", () => sort(table, head, column));
      head.append(button);
    });
  }
})();
