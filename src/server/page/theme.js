// Light, dark, or as the system says. Runs before the first paint, so that a remembered choice does not flash.
(() => {
  const key = "icewright-theme";
  const themes = ["auto", "light", "dark"];
  const read = () => {
    try {
      const saved = localStorage.getItem(key);
      return themes.includes(saved) ? saved : "auto";
    } catch {
      return "auto"; // Storage may be forbidden.
    }
  };
  const apply = (theme) => {
    document.documentElement.dataset.theme = theme;
    const button = document.getElementById("theme");
    if (button) {
      button.textContent = { auto: "◐ Auto", light: "○ Light", dark: "● Dark" }[theme];
      button.setAttribute("aria-label", `Colour theme: ${theme}. Change it.`);
    }
  };
  apply(read());
  document.addEventListener("DOMContentLoaded", () => {
    apply(read());
    document.getElementById("theme").addEventListener("click", () => {
      const next = themes[(themes.indexOf(document.documentElement.dataset.theme) + 1) % themes.length];
      apply(next);
      try {
        localStorage.setItem(key, next);
      } catch {
        // Then it holds until the page is closed.
      }
    });
  });
})();
