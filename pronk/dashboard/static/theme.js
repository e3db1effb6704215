// The theme: the system's, unless the reader chose one. It runs before anything is drawn, so that nothing flashes.
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => localStorage.getItem("theme") ?? "auto";
  function apply() {
    document.documentElement.dataset.theme = chosen() === "auto" ? (dark.matches ? "dark" : "light") : chosen();
    const button = document.getElementById("theme");
    if (!button) return;
    button.textContent = { auto: "◐ Auto", light: "☀ Light", dark: "☾ Dark" }[chosen()];
    button.setAttribute("aria-label", `Theme: ${chosen()}. Change it`);
  }
  document.addEventListener("DOMContentLoaded", () => {
    document.getElementById("theme").addEventListener("click", () => {
      localStorage.setItem("theme", { auto: "light", light: "dark", dark: "auto" }[chosen()]);
      apply();
    });
    apply();
  });
  dark.addEventListener("change", apply);
  apply();
})();
