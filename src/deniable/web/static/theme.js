// Light, dark, or what the system says: kept in this browser only. Runs before the first paint.
(() => {
  const CHOICES = ["system", "light", "dark"];
  const SIGNS = { system: "◐", light: "☀", dark: "☾" };
  const root = document.documentElement;
  const kept = () => {
    try { return localStorage.getItem("theme") || "system"; } catch { return "system"; }
  };
  const apply = (choice) => {
    if (choice === "system") delete root.dataset.theme;
    else root.dataset.theme = choice;
    root.dispatchEvent(new CustomEvent("themechange"));
  };
  apply(kept());
  addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const label = (choice) => {
      button.textContent = SIGNS[choice];
      button.setAttribute("aria-label", `Colours: ${choice === "system" ? "follow the system" : choice}`);
      button.title = button.getAttribute("aria-label");
    };
    label(kept());
    button.hidden = false;
    button.addEventListener("click", () => {
      const next = CHOICES[(CHOICES.indexOf(kept()) + 1) % CHOICES.length];
      try { localStorage.setItem("theme", next); } catch { /* then only for this page */ }
      label(next);
      apply(next);
    });
  });
})();
