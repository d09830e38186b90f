// Light or dark: the system's choice until the reader makes one.

const THEMES = ["system", "light", "dark"];

function setUpTheme() {
  const button = document.getElementById("theme");
  let theme = stored();
  apply();
  button.hidden = false;
  button.addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    try {
      localStorage.setItem("gapscope-theme", theme);
    } catch {
      // pages from files may store nothing: the choice lasts as long as the page
    }
    apply();
  });

  function apply() {
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.textContent = `Colors: ${theme}`;
  }

  function stored() {
    try {
      const found = localStorage.getItem("gapscope-theme");
      return THEMES.includes(found) ? found : "system";
    } catch {
      return "system";
    }
  }
}
