/* A filter for the tables of a page: by a text, and by the values of the columns "keyword", "revisions" and "checked by".
   Without this script the page shows all rows. */

"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const tables = [...document.querySelectorAll("table.filtered")].map((table) => {
    const box = table.closest(".table-wrapper") ?? table;
    const heading = box.previousElementSibling;
    return {
      parts: heading?.classList.contains("rubric") ? [heading, box] : [box],
      names: [...table.tHead.rows[0].cells].map((cell) => cell.textContent.trim()),
      rows: [...table.tBodies[0].rows],
      about: heading?.textContent ?? "",
    };
  });
  if (!tables.length) return;

  const rows = tables.flatMap((table) =>
    table.rows.map((row) => {
      const cells = Object.fromEntries(table.names.map((name, at) => [name, row.cells[at]]));
      const by = cells["checked by"];
      return {
        row,
        table,
        text: `${table.about} ${row.textContent}`.toLowerCase(),
        keyword: cells.keyword ? [cells.keyword.textContent.trim()] : [],
        revision: cells["written in"]?.textContent.match(/\d{4}-\d{2}-\d{2}/g) ?? [],
        // The name of a rule is code; anything else says why no rule checks it.
        state: by ? [by.querySelector("code") ? "checked" : by.textContent.trim()] : [],
      };
    }),
  );

  const form = document.createElement("form");
  form.className = "filter";
  form.setAttribute("role", "search");
  const label = (text, control) => {
    const around = document.createElement("label");
    around.append(`${text} `, control);
    form.append(around);
    return control;
  };
  const search = document.createElement("input");
  search.type = "search";
  search.placeholder = "words, a section, a name";
  label("Filter", search);
  const choices = ["revision", "keyword", "state"].flatMap((name) => {
    const values = [...new Set(rows.flatMap((row) => row[name]))];
    if (!values.length) return [];
    const select = document.createElement("select");
    select.append(...["any", ...values].map((value) => new Option(value, value === "any" ? "" : value)));
    return [[name, label(name, select)]];
  });
  const shown = document.createElement("output");
  form.append(shown);
  tables[0].parts[0].before(form);

  const apply = () => {
    const words = search.value.toLowerCase().split(/\s+/);
    let count = 0;
    const used = new Set();
    for (const each of rows) {
      const fits =
        words.every((word) => each.text.includes(word)) &&
        choices.every(([name, select]) => !select.value || each[name].includes(select.value));
      each.row.hidden = !fits;
      if (fits) {
        count += 1;
        used.add(each.table);
      }
    }
    for (const table of tables) for (const part of table.parts) part.hidden = !used.has(table);
    shown.textContent = `${count} of ${rows.length} rows`;
  };
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  apply();
});
