// The ledger: verifies the chains, at once where that is quick, else when asked.
const seal = document.getElementById("seal");
const button = document.getElementById("verify");
const words = document.getElementById("seal-words");
const more = document.getElementById("seal-more");

async function verify() {
  button.disabled = true;
  words.textContent = "Checking every entry and every decision …";
  try {
    const response = await fetch("/ledger/verification", { headers: { Accept: "application/json" } });
    if (!response.ok) throw new Error("the service did not answer");
    const found = await response.json();
    words.textContent = found.sound ? "✓ Audit log intact: nothing was changed or removed." : `✗ ${found.problem}`;
    words.className = `seal ${found.sound ? "good" : "bad"}`;
    const count = (number) => number.toLocaleString("en");
    more.textContent = `${count(found.commitments)} entries and ${count(found.decisions)} decisions checked, `
      + `${count(found.erased)} of them erased.`;
    more.hidden = false;
    document.getElementById("heads").textContent = Object.entries(found.heads).map(([name, head]) => `${name}  ${head}`).join("\n");
    document.getElementById("seal-heads").hidden = false;
    seal.dataset.checked = found.sound ? "sound" : "broken";
  } catch (error) {
    words.textContent = `The chain could not be checked: ${error.message}.`;
  } finally {
    button.disabled = false;
  }
}

button.addEventListener("click", verify);
if (seal.dataset.atOnce) verify();
