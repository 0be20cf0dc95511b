// What every page has: actions asked about in a dialog, buttons that copy, tables as files.
const root = document.documentElement;
root.dataset.scripts = "on";

// -- Dialogs: a link with data-dialog opens the page behind it without leaving this one.
async function ask(link) {
  const answer = await fetch(link.href, { headers: { accept: "text/html" } });
  if (!answer.ok || answer.redirected) return location.assign(link.href);
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const asked = page.querySelector("[data-asks]");
  if (!asked) return location.assign(link.href);
  const dialog = document.createElement("dialog");
  dialog.setAttribute("aria-labelledby", "asks");
  dialog.append(...asked.childNodes);
  document.body.append(dialog);
  dialog.addEventListener("close", () => { dialog.remove(); link.focus(); });
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog || event.target.closest("[data-close]")) {
      event.preventDefault();
      dialog.close();
    }
  });
  dialog.showModal();
}

// -- Tables as files: the text of the cells, quoted; no cell becomes a formula.
const quoted = (text) => {
  const plain = /^[=+\-@\t\r]/.test(text) && !/^[+\-−]?[\d.,]+%?$/.test(text) ? `'${text}` : text;
  return /[",\n]/.test(plain) ? `"${plain.replaceAll('"', '""')}"` : plain;
};
const text = (cell) => {
  const copy = cell.cloneNode(true);
  for (const unseen of copy.querySelectorAll("svg, meter, .hidden")) unseen.remove();
  for (const small of copy.querySelectorAll("small")) small.textContent = ` (${small.textContent.trim()})`;
  return copy.textContent.replace(/\s+/g, " ").trim();
};

function save(button) {
  let around = button.parentElement;
  while (around && !around.querySelector("table")) around = around.parentElement;
  const rows = [...around.querySelector("table").rows].map((row) => [...row.cells].map(text).map(quoted).join(","));
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([`${rows.join("\n")}\n`], { type: "text/csv" }));
  link.download = `${(location.pathname.split("/").pop() || "deniable")}-${button.dataset.csv}.csv`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// -- Copying: from the element with this id; where there is no clipboard, it is selected.
async function copy(button) {
  const source = document.getElementById(button.dataset.copy);
  const label = button.firstChild;
  const before = label.textContent;
  try {
    await navigator.clipboard.writeText(source.textContent);
    label.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(source);
    label.textContent = "Selected: press Ctrl+C";
  }
  setTimeout(() => { label.textContent = before; }, 2000);
}

// -- Tabs: the style sheet shows the part that the address names; this marks its link, and keeps the page in place.
const tabs = document.querySelector(".tabs");
function mark() {
  for (const link of tabs.querySelectorAll("a")) {
    const shown = getComputedStyle(document.querySelector(link.hash)).visibility === "visible";
    if (shown) link.setAttribute("aria-current", "true"); else link.removeAttribute("aria-current");
  }
}
if (tabs) {
  for (const moment of ["load", "hashchange"]) addEventListener(moment, mark); // the target is known when all is loaded
  if (document.readyState === "complete") mark();
  tabs.addEventListener("click", (event) => {
    const link = event.target.closest("a");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const panels = document.querySelector(".panels");
    const top = Math.min(scrollY, scrollY + panels.getBoundingClientRect().top - tabs.parentElement.offsetHeight);
    location.hash = link.hash;
    scrollTo(scrollX, top);
    link.focus({ preventScroll: true });
  });
}

document.addEventListener("click", (event) => {
  const found = event.target.closest("[data-dialog], [data-csv], [data-copy]");
  if (!found || event.ctrlKey || event.metaKey || event.shiftKey) return;
  if (found.dataset.csv) save(found);
  else if (found.dataset.copy) copy(found);
  else {
    event.preventDefault();
    ask(found).catch(() => location.assign(found.href));
  }
});

// -- What only some pages have: loaded where it is needed, once the page can be used.
const PARTS = { "figure.chart": "./charts.js", "#live": "./live.js", "#seal": "./ledger.js", "#print": "./print.js" };
for (const [found, module] of Object.entries(PARTS)) if (document.querySelector(found)) import(module);
