// The portfolio: sends experiments and the firm's budget, shows the allocation while they change.
import { drawAll, refill } from "./charts.js";

const CHARTS = { bars: ["bars"], gains: ["gains", "dots", "price"], what_if: ["what_if", "here"], rules: ["rules"] };
const FIGURES = { regret: "Clicks lost", saved: "Saved", gain: "Next nat saves" };
const state = JSON.parse(document.getElementById("state").textContent);
const drafts = new Set(state.drafts);
const setting = document.getElementById("setting");
const slider = document.getElementById("slider");
const budget = document.getElementById("firm_budget");
const reserve = document.getElementById("reserve");
const wrong = document.getElementById("wrong");
const application = document.getElementById("application");
const ownReserve = reserve.value;
function setReserve(value) { // a file or the example has nothing to do with what is committed here
  reserve.value = value;
  document.getElementById("taken")?.toggleAttribute("hidden", !Number(value));
}
const show = (id) => { document.getElementById(id).hidden = false; };
const text = (id, value) => { document.getElementById(id).textContent = value; };
const number = (value) => value.toLocaleString("en", { maximumFractionDigits: 0 });
const short = (value) => value.toLocaleString("en", { maximumSignificantDigits: 4 });

let rows = state.rows;
let waiting = false;
let next = null; // what was asked while an answer was awaited
let example = false; // its names may be those of drafts by chance
let curveOf = ""; // the experiments and strategies that the what-if curve on the page is for
let curve = [];
let answered = []; // what each row got
let from = 0; // the first row on the page
const SIZE = 25;
const find = document.getElementById("find");
const working = document.getElementById("working");

async function post(path, question) {
  const response = await fetch(path, {
    method: "POST",
    headers: {
      "Content-Type": "application/json", Accept: "application/json",
      "X-Form-Token": document.querySelector('meta[name="form-token"]').content,
    },
    body: JSON.stringify(question),
  });
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.wrong ?? answer.detail ?? "That did not work.");
  return answer;
}

const ASKED = ["regime", "objective", "base_rate", "lift"];
const chosen = () => ({
  firm_budget: budget.value || "0", reserve: reserve.value,
  ...Object.fromEntries(ASKED.map((name) => [name, setting.elements[name].value])),
});

function cell(row, content, kind = "td", label = "") {
  const made = document.createElement(kind);
  if (label) { made.dataset.label = label; made.setAttribute("role", "cell"); }
  if (content instanceof Node) made.append(content); else made.textContent = content;
  row.append(made);
  return made;
}

function pin(row, name, line) {
  const input = document.createElement("input");
  input.type = "number"; input.min = "0"; input.step = "any"; input.value = row[name] ?? "";
  const label = name === "min_budget" ? "At least" : "At most";
  input.setAttribute("aria-label", `${label}, ${row.id}`);
  input.addEventListener("change", () => { row[name] = input.value; ask(); });
  cell(line, input, "td", label);
}

function choice(row, line) {
  const select = document.createElement("select");
  // The regimes that can be chosen are "flexible" and every strategy.
  const names = [...document.getElementById("regime").options].map((option) => option.value);
  for (const name of names) {
    const value = name === "flexible" ? "" : name;
    select.add(new Option(value || "best", value, false, (row.strategy ?? "") === value));
  }
  select.setAttribute("aria-label", `Strategy, ${row.id}`);
  select.addEventListener("change", () => { row.strategy = select.value; ask(); });
  cell(line, select, "td", "Strategy");
}

// A long portfolio is shown in pages, and can be searched; all of it is divided.
function places() {
  const wanted = find.value.trim().toLowerCase();
  return rows.map((row, place) => place).filter((place) => rows[place].id.toLowerCase().includes(wanted));
}

function turn() {
  const found = places();
  from = Math.max(0, Math.min(from, Math.floor((found.length - 1) / SIZE) * SIZE));
  document.getElementById("finder").hidden = rows.length <= SIZE;
  document.getElementById("pager").hidden = found.length <= SIZE;
  document.getElementById("previous").disabled = from === 0;
  document.getElementById("next").disabled = from + SIZE >= found.length;
  text("pager-words", `${number(from + 1)} to ${number(Math.min(from + SIZE, found.length))} of ${number(found.length)}`);
  return found.slice(from, from + SIZE);
}

function build() {
  document.getElementById("lines").replaceChildren(...turn().map((place) => {
    const row = rows[place];
    const line = document.createElement("tr");
    line.dataset.place = place;
    line.setAttribute("role", "row");
    const name = cell(line, row.id, "th");
    name.scope = "row"; name.className = "name"; name.setAttribute("role", "rowheader");
    const notes = [`${row.arms} variants, ${number(Number(row.visitors))} visitors`, row.layer && `layer ${row.layer}`,
      !example && drafts.has(row.id) && "draft"].filter(Boolean);
    for (const note of notes) name.append(Object.assign(document.createElement("small"), { textContent: note }));
    cell(line, "", "td", "Budget").className = "number budget";
    if (row.committed === null || row.committed === undefined || row.committed === "") {
      choice(row, line); pin(row, "min_budget", line); pin(row, "max_budget", line);
    } else {
      cell(line, row.strategy ?? "", "td", "Strategy");
      const held = cell(line, "promised", "td", "Limits"); held.colSpan = 2; held.className = "soft";
    }
    for (const [part, label] of Object.entries(FIGURES)) cell(line, "", "td", label).className = `number ${part}`;
    return line;
  }));
}

function showLines() {
  for (const row of document.getElementById("lines").rows) {
    const line = answered[row.dataset.place];
    if (!line) continue;
    row.querySelector(".budget").textContent = short(line.budget);
    row.querySelector(".regret").textContent = number(line.regret);
    row.querySelector(".saved").textContent = number(line.saved);
    row.querySelector(".gain").textContent = line.gain;
    const select = row.querySelector("select");
    if (select) select.options[0].textContent = `best: ${line.strategy}`;
  }
}

// Experiments of one layer cost only the largest budget among them: the column does not add up to what is spent.
function showTotals(answer) {
  const sum = (part) => answered.reduce((total, line) => total + line[part], 0);
  const alone = sum("budget");
  text("sum-budget", short(answer.spent));
  text("sum-note", alone - answer.spent > 1e-6 ? `${short(alone)} if no layer shared` : "");
  text("sum-regret", number(answer.total));
  text("sum-saved", number(sum("saved")));
}

function list() { build(); showLines(); }

// The charts come with the first answer: before, there is nothing to draw.
function makeCharts(answer) {
  const place = document.getElementById("charts");
  if (place.children.length) return;
  place.append(document.getElementById("drawings").content.cloneNode(true));
  for (const [name, parts] of Object.entries(CHARTS)) {
    const source = document.getElementById(name).querySelector('script[type="application/json"]');
    const data = { what_if: answer.datasets.here, ...answer.datasets };
    const datasets = Object.fromEntries(parts.map((part) => [part, data[part]]));
    source.textContent = JSON.stringify({ ...JSON.parse(source.textContent), datasets });
  }
  drawAll(place);
}

function showChart(name, answer) {
  const summary = answer.summaries[name];
  text(`${name}-summary`, summary);
  const figure = document.getElementById(name);
  figure.querySelector("[role=img]").setAttribute("aria-label", `${figure.querySelector("h3").textContent}. ${summary}`);
  const table = answer.tables[name];
  if (table) document.getElementById(`${name}-rows`).replaceChildren(...table.rows.map((cells) => {
    const row = document.createElement("tr");
    for (const content of cells) cell(row, content);
    return row;
  }));
  const data = Object.fromEntries(CHARTS[name].filter((part) => answer.datasets[part]).map((part) => [part, answer.datasets[part]]));
  return refill(name, data);
}

async function showAll(answer) {
  answered = answer.lines;
  showLines();
  showTotals(answer);
  text("verdict", answer.verdict);
  text("spent", short(answer.spent));
  text("total", number(answer.total));
  text("price", short(answer.price));
  text("gap", answer.gap);
  text("certificate", answer.certified ? "of what can be saved, at most" : "of what can be saved: not proven to be less");
  text("total-title", answer.lost_title);
  text("meaning", answer.meaning);
  const affected = example ? 0 : rows.filter((row) => drafts.has(row.id)).length;
  const apply = document.getElementById("apply");
  if (apply) { apply.disabled = !affected; text("affected", `${affected} draft${affected === 1 ? "" : "s"}`); }
  for (const [name, value] of Object.entries({ ...chosen(), rows: JSON.stringify(rows) })) application.elements[name].value = value;
  for (const part of ["outcome", "allocation", "charts"]) show(part);
  document.getElementById("empty").hidden = true;
  makeCharts(answer);
  await Promise.all(Object.keys(CHARTS).map((name) => showChart(name, answer)));
}

async function drawCurve() {
  const key = JSON.stringify([rows, ASKED.map((name) => setting.elements[name].value)]);
  if (key === curveOf) return;
  curveOf = key;
  try {
    const answer = await post("/portfolio/what-if", { rows, ...chosen() });
    if (curveOf !== key) return;
    curve = answer.what_if;
    document.getElementById("what_if-rows").replaceChildren(...curve.map((point) => {
      const row = document.createElement("tr");
      cell(row, short(point.firm_budget)).className = "number";
      cell(row, number(point.regret)).className = "number";
      return row;
    }));
    const least = curve[curve.length - 1].firm_budget;
    if (least > Number(slider.max)) slider.max = Math.ceil(least);
    await refill("what_if", { what_if: curve });
  } catch { curveOf = ""; }
}

async function ask(question = {}) {
  if (waiting) { // a new table is not forgotten because the slider moved after it
    if ("csv" in question || question.fresh || !("csv" in (next ?? {}))) next = question;
    return;
  }
  waiting = true;
  working.hidden = answered.length > 0;
  const began = performance.now();
  try {
    const foreign = "csv" in question; // a file has nothing to do with what counts here
    const asked = foreign ? { csv: question.csv, ...chosen(), reserve: 0 } : { rows, ...chosen() };
    const answer = await post("/portfolio/data", asked);
    wrong.hidden = true;
    if (foreign) { rows = answer.rows; setReserve(0); example = question.example ?? false; from = 0; answered = []; build(); }
    await showAll(answer);
    setting.dataset.took = (performance.now() - began).toFixed(1);
    drawCurve();
  } catch (error) {
    wrong.hidden = false;
    wrong.textContent = error.message;
    setting.dataset.took = "failed";
  } finally {
    waiting = false;
    working.hidden = true;
    if (next) { const question = next; next = null; ask(question); }
  }
}

slider.addEventListener("input", () => { budget.value = slider.value; });
budget.addEventListener("input", () => { slider.value = budget.value; });
setting.addEventListener("input", (event) => { if (event.target.type !== "file") ask(); });
setting.addEventListener("submit", (event) => event.preventDefault());
document.getElementById("ours").addEventListener("click", () => {
  rows = structuredClone(state.rows); example = false; setReserve(ownReserve); from = 0; answered = []; build(); ask({ fresh: true });
});
document.getElementById("example").addEventListener("click", () => {
  ask({ csv: state.example, example: true });
});
document.getElementById("file").addEventListener("change", async (event) => {
  const file = event.target.files[0];
  if (!file) return;
  ask({ csv: await file.text() });
});
const sure = document.getElementById("sure");
document.getElementById("apply")?.addEventListener("click", () => sure.showModal());
document.getElementById("keep")?.addEventListener("click", () => sure.close());
application.addEventListener("submit", async (event) => {
  if (event.submitter?.id === "download") return;
  event.preventDefault(); // a refusal must not lose what was set by hand
  sure.close();
  try {
    const answer = await fetch(application.action, {
      method: "POST", headers: { Accept: "application/json" }, body: new URLSearchParams(new FormData(application)),
    });
    const found = await answer.json();
    if (answer.ok) return location.assign(found.next);
    wrong.textContent = found.wrong ?? found.detail ?? "That did not work.";
  } catch {
    wrong.textContent = "The service did not answer. Nothing was changed.";
  }
  wrong.hidden = false;
  wrong.scrollIntoView({ block: "center" });
});
find.addEventListener("input", () => { from = 0; list(); });
document.getElementById("previous").addEventListener("click", () => { from -= SIZE; list(); });
document.getElementById("next").addEventListener("click", () => { from += SIZE; list(); });
if (rows.length) { build(); ask(); }
