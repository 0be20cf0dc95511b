// Keeps a page up to date: asks every few seconds, only while somebody looks.
const note = document.getElementById("live-state");
const live = document.getElementById("live");
const toggle = document.getElementById("live-toggle");
const SECONDS = Number(live.dataset.seconds);
const USUAL = note.textContent;
let held = false;
let state = null;
let waiting = null;
let last = new Date();

// fresh, held, or gone: the dot beside the words shows which.
function tell(state, words) {
  live.dataset.liveState = state;
  if (note.textContent !== words) note.textContent = words;
}

const written = new Map(); // id -> what was last written into it

function replace(id, html) {
  const element = document.getElementById(id);
  // What somebody reads by keyboard is left alone.
  if (!element || written.get(id) === html || element.contains(document.activeElement)) return;
  element.innerHTML = html; // from our own templates, which escape
  written.set(id, html);
}

async function update() {
  const answer = await fetch(live.dataset.url + location.search, { headers: { accept: "application/json" } });
  if (answer.status === 401) return location.reload();
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  const found = await answer.json();
  const now = JSON.stringify(found.state);
  if (state !== null && state !== now) return location.reload(); // somebody started, paused, stopped it
  state = now;
  for (const [id, html] of Object.entries(found.parts)) replace(id, html);
  let more = false;
  for (const [name, chart] of Object.entries(found.charts)) {
    const figure = document.getElementById(name);
    if (!figure) {
      if (!document.querySelector("figure.chart")) return location.reload(); // the first visitors came
      more = true; // whoever reads is not interrupted
      continue;
    }
    document.getElementById(`${name}-summary`).textContent = chart.summary;
    figure.querySelector("[role=img]").setAttribute("aria-label", `${figure.querySelector("h3").textContent}. ${chart.summary}`);
    replace(`${name}-rows`, chart.rows);
    const { refill } = await import("./charts.js");
    await refill(figure, chart.datasets);
  }
  last = new Date();
  tell("fresh", more ? `${USUAL} Reload the page for more charts.` : USUAL);
  document.documentElement.dataset.updates = String(Number(document.documentElement.dataset.updates || 0) + 1);
}

async function tick() {
  clearTimeout(waiting);
  if (!held && !document.hidden) {
    try {
      await update();
    } catch {
      tell("gone", `The service does not answer. Last updated ${last.toLocaleTimeString("en-GB")}; trying again.`);
    }
  }
  waiting = setTimeout(tick, SECONDS * 1000);
}

toggle.hidden = false;
toggle.addEventListener("click", () => {
  held = !held;
  toggle.setAttribute("aria-pressed", String(held));
  toggle.textContent = held ? "Unfreeze" : "Freeze";
  tell(held ? "held" : "fresh", held ? `Frozen since ${last.toLocaleTimeString("en-GB")}.` : USUAL);
});
document.addEventListener("visibilitychange", () => { if (!document.hidden) tick(); });
waiting = setTimeout(tick, SECONDS * 1000);
