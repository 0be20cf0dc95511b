// The planner: asks for the numbers of the present setting while it changes, and shows them.
import { refill } from "./charts.js";

const setting = document.getElementById("setting");
const slider = document.getElementById("slider");
const budget = document.getElementById("budget");
const wrong = document.getElementById("wrong");
const results = document.querySelector(".results");
const link = document.getElementById("link");
const recommended = document.getElementById("recommended");
const arms = document.getElementById("arm_names");
const segments = document.getElementById("segment_names");
const creation = document.getElementById("creation");

let waiting = false;
let stale = false;
let creating = false;
let shown = {}; // each dataset that the charts hold, as text: what did not change is not drawn again

// Until somebody chooses a budget the recommended one is shown, and follows the other fields.
let following = Boolean(setting.dataset.recommended);

// Fields that the page fills in unless it is told that they are empty.
const emptied = ["max_belief", "base_rate"];

const query = () => {
  const fields = [...new FormData(setting)]
    .map(([name, value]) => [name, value === "" && emptied.includes(name) ? "none" : value])
    .filter(([name, value]) => value !== "" && !(following && name === "budget"));
  return new URLSearchParams(fields).toString();
};

function mark(id, counts) {
  document.getElementById(id).querySelectorAll("use").forEach((person, place) => {
    person.setAttribute("class", counts.find(([, upTo]) => place < upTo)?.[0] ?? "");
  });
}

function showIcons(icons) {
  mark("believed", [["before", icons.before], ["after", icons.after]]);
  mark("chance", [["random", icons.random]]);
  for (const place of document.querySelectorAll("[data-icon]")) place.textContent = icons[place.dataset.icon];
  document.getElementById("believed").setAttribute(
    "aria-label", `Before ${icons.before} of 100, afterwards at most ${icons.after} of 100`);
  document.getElementById("chance").setAttribute("aria-label", `${icons.random} of 100 are shown a variant that does not depend on their segment`);
}

async function showChart(name, answer) {
  const rows = answer.tables[name].rows.map((cells) => {
    const row = document.createElement("tr");
    for (const cell of cells) row.appendChild(document.createElement("td")).textContent = cell;
    return row;
  });
  document.getElementById(`${name}-rows`).replaceChildren(...rows);
  document.getElementById(`${name}-summary`).textContent = answer.summaries[name];
  const figure = document.getElementById(name);
  const title = figure.querySelector("h3").textContent;
  figure.querySelector("[role=img]").setAttribute("aria-label", `${title}. ${answer.summaries[name]}`);
  const changed = answer.charts[name].filter((part) => shown[part] !== answer.texts[part]);
  if (changed.length) await refill(name, Object.fromEntries(changed.map((part) => [part, answer.datasets[part]])));
}

async function show(answer) {
  showIcons(answer.icons);
  const unfolded = document.getElementById("why")?.open;
  document.getElementById("words").innerHTML = answer.words; // made and escaped by our own templates
  document.getElementById("why").open = unfolded;
  document.getElementById("expectation").hidden = !answer.answer;
  document.getElementById("bounds").textContent = answer.bounds;
  document.getElementById("example").textContent = answer.example;
  recommended.dataset.budget = answer.recommended;
  recommended.hidden = false;
  recommended.textContent = `Suggested: ${answer.recommended}`;
  if (following) setBudget(answer.budget);
  for (const link of document.querySelectorAll("[data-follows]")) link.href = `${link.dataset.follows}?${answer.query}`;
  for (const copy of document.querySelectorAll("[data-copies]")) {
    copy.value = answer.copies[copy.dataset.copies];
  }
  history.replaceState(null, "", `/planner?${answer.query}${location.hash}`);
  answer.texts = Object.fromEntries(Object.entries(answer.datasets).map(([part, data]) => [part, JSON.stringify(data)]));
  await Promise.all(Object.keys(answer.charts).map((name) => showChart(name, answer)));
  shown = answer.texts;
}

async function ask() {
  if (waiting) { stale = true; return; }
  waiting = true;
  const asked = performance.now();
  try {
    const response = await fetch(`/planner/data?${query()}`, { headers: { Accept: "application/json" } });
    const answer = await response.json();
    setting.dataset.answered = (performance.now() - asked).toFixed(1);
    wrong.hidden = response.ok;
    results.inert = !response.ok; // numbers of another setting are not to be taken or signed
    creating &&= response.ok;
    if (response.ok) await show(answer);
    else wrong.textContent = answer.wrong ?? answer.detail ?? "That did not work.";
    if (!stale) setting.dataset.took = (performance.now() - asked).toFixed(1);
  } catch (error) {
    wrong.hidden = false;
    wrong.textContent = "The service did not answer. What you see is from before.";
    results.inert = true;
    creating = false;
  } finally {
    waiting = false;
    if (stale) { stale = false; ask(); }
    else if (creating) { creating = false; creation.requestSubmit(); }
  }
}

function fill(area, count, word) {
  if (!area || area.dataset.touched) return;
  area.value = Array.from({ length: Math.min(count, 256) }, (_, place) => `${word}-${place + 1}`).join("\n");
}

function suggest() {
  fill(arms, Number(setting.elements.arms.value), "arm");
  fill(segments, Number(setting.elements.segments.value), "segment");
}

function setBudget(value) {
  budget.value = value;
  slider.value = value;
}

for (const chosen of [slider, budget]) {
  chosen.addEventListener("input", () => {
    following = false;
    (chosen === slider ? budget : slider).value = chosen.value;
  });
}
recommended.addEventListener("click", () => {
  following = true;
  setBudget(recommended.dataset.budget);
  ask();
});
link.addEventListener("click", async (event) => {
  if (!navigator.clipboard) return; // then the link just opens
  event.preventDefault();
  await navigator.clipboard.writeText(link.href);
  const before = link.textContent;
  link.textContent = "Copied";
  setTimeout(() => { link.textContent = before; }, 2000);
});
// Charts of a closed part have no width to fill; they look again when the window changes.
document.getElementById("mathematics").addEventListener("toggle", () => dispatchEvent(new Event("resize")));
for (const area of [arms, segments]) area?.addEventListener("input", () => { area.dataset.touched = "yes"; });
setting.addEventListener("input", () => { suggest(); ask(); });
setting.addEventListener("submit", (event) => { event.preventDefault(); ask(); });
// The draft is made of the last answer: wait for the one to what was typed last.
creation?.addEventListener("submit", (event) => {
  if (!waiting) return;
  event.preventDefault();
  creating = true;
});
for (const area of [arms, segments]) if (area?.value) area.dataset.touched = "yes"; // of a refused draft
suggest();
ask();
