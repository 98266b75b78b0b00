// The filter of a table: rows that have all words, wherever in the row.
for (const line of document.querySelectorAll(".filter")) {
  const rows = [...line.nextElementSibling.querySelectorAll("tbody tr")];
  const [field, shown] = [line.querySelector("input"), line.querySelector("output")];
  let texts = null;
  line.hidden = false;
  field.addEventListener("input", () => {
    texts ||= rows.map((row) => row.textContent.toLowerCase());
    const words = field.value.toLowerCase().split(/\s+/);
    rows.forEach((row, index) => { row.hidden = !words.every((word) => texts[index].includes(word)); });
    shown.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} rows`;
  });
}
