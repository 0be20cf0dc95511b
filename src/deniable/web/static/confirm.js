// Asks before a form is sent that cannot be undone: <button data-opens="id of a <dialog>">.
for (const button of document.querySelectorAll("[data-opens]")) {
  const dialog = document.getElementById(button.dataset.opens);
  button.addEventListener("click", () => dialog.showModal());
  for (const closing of dialog.querySelectorAll("[data-closes]")) {
    closing.addEventListener("click", () => dialog.close());
  }
}
