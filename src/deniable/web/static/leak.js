// Offers the columns of the chosen file where columns are named: read here, from its first line.
const file = document.getElementById("log");
const offered = document.getElementById("columns");
const FIRST = 65536; // bytes

function columnsOf(line) {
  try {
    return Object.keys(JSON.parse(line));
  } catch {
    const separator = [",", ";", "\t"].reduce((best, one) => (line.split(one).length > line.split(best).length ? one : best));
    return line.split(separator).map((name) => name.trim().replace(/^"|"$/g, ""));
  }
}

file.addEventListener("change", async () => {
  const start = file.files[0] ? await file.files[0].slice(0, FIRST).text() : "";
  const readable = start && !start.includes("\0") && !start.includes("\ufffd"); // not Parquet, not compressed
  const names = readable ? columnsOf(start.split(/\r?\n/, 1)[0]) : [];
  offered.replaceChildren(...names.map((name) => new Option("", name)));
});
